"""The test programs beside this file, in C++: built here, and run on every level that this processor runs.

RADIXRT_SANITIZE names sanitizers to build them with, as `make sanitize` does.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

from radixrt.kernels.cpu import availability
from tests.import_rules import ROOT

pytestmark = pytest.mark.long  # they are compiled first

SANITIZER = os.environ.get("RADIXRT_SANITIZE")
AARCH64 = 183
"""An ELF file's number for the machine that it is for."""


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built programs."""
    if shutil.which("c++") is None:
        pytest.skip("no C++ compiler")
    options = [f"-DRADIXRT_SANITIZE={SANITIZER}"] if SANITIZER else []
    return build_programs(tmp_path_factory.mktemp("programs"), *options)


def build_programs(folder: Path, *options: str) -> Path:
    """Build everything but the Python module into a folder; returns where the programs are."""
    cmake, ninja = tool("cmake"), tool("ninja")
    configure = [cmake, "-S", str(ROOT), "-B", str(folder), "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}"]
    for command in ([*configure, "-DRADIXRT_TESTS=ON", *options], [cmake, "--build", str(folder)]):
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert done.returncode == 0, done.stdout
    return folder / "radixrt" / "kernels" / "cpu"


def tool(name: str) -> str:
    """A program that the `dev` extra brings: beside this Python, or anywhere."""
    found = shutil.which(name, path=os.pathsep.join((sysconfig.get_path("scripts"), os.environ["PATH"])))
    assert found is not None
    return found


def run(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_the_thread_pool(programs: Path) -> None:
    # ThreadSanitizer has fixed places in memory, which a kernel may have given away at random.
    unshuffled = ["setarch", "--addr-no-randomize"] if SANITIZER == "thread" and shutil.which("setarch") else []
    run(*unshuffled, programs / "threads_test")


@pytest.mark.parametrize("level", ["portable", "avx2", "avx512"])
def test_each_operation_on_sixteen_lanes_means_what_a_plain_computation_does(programs: Path, level: str) -> None:
    if availability.why_not() is None and level not in availability.levels():
        pytest.skip(f"this processor does not run {level}")
    run(programs / f"simd_test_{level}")


@pytest.mark.long
def test_the_portable_level_is_compiled_for_64_bit_arm(tmp_path: Path) -> None:
    if shutil.which("aarch64-linux-gnu-g++") is None:
        pytest.skip("no compiler for aarch64 (Debian: g++-aarch64-linux-gnu)")
    built = build_programs(tmp_path, f"-DCMAKE_TOOLCHAIN_FILE={ROOT}/kernels/cpu/aarch64-linux-gnu.cmake")
    objects = sorted(path.parents[1].name for path in built.glob("CMakeFiles/level_*/src/level.cpp.o"))
    assert objects == ["level_portable.dir"]
    for program in ("simd_test_portable", "threads_test"):
        header = (built / program).read_bytes()[:20]
        assert (header[:4], int.from_bytes(header[18:20], "little")) == (b"\x7fELF", AARCH64)
        if emulator := shutil.which("qemu-aarch64"):
            run(emulator, "-L", "/usr/aarch64-linux-gnu", built / program)
