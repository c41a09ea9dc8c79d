"""The test programs beside this file, in C++: built here, and run on every level that this processor runs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

from tests.import_rules import ROOT


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built programs."""
    if shutil.which("c++") is None:
        pytest.skip("no C++ compiler")
    folder = tmp_path_factory.mktemp("programs")
    build_programs(folder)
    return folder / "radixrt" / "kernels" / "cpu"


def build_programs(folder: Path, *options: str) -> None:
    """Configure with RADIXRT_TESTS and build into `folder`."""
    cmake = tool("cmake")
    configure: list[str | Path] = [cmake, "-S", ROOT, "-B", folder, "-G", "Ninja", "-DRADIXRT_TESTS=ON", *options]
    configure.append(f"-DCMAKE_MAKE_PROGRAM={tool('ninja')}")
    for command in (configure, [cmake, "--build", folder]):
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert done.returncode == 0, done.stdout


def tool(name: str) -> str:
    """A program that the `dev` extra brings: beside this Python, or anywhere."""
    found = shutil.which(name, path=os.pathsep.join((sysconfig.get_path("scripts"), os.environ["PATH"])))
    assert found is not None
    return found


def run(program: Path) -> None:
    done = subprocess.run([program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_the_thread_pool(programs: Path) -> None:
    run(programs / "threads_test")


@pytest.mark.parametrize("level", ["portable", "avx2", "avx512"])
def test_each_operation_on_sixteen_lanes_means_what_a_plain_computation_does(programs: Path, level: str) -> None:
    from radixrt.kernels.cpu import _native

    if level not in _native.levels():
        pytest.skip(f"this processor does not run {level}")
    run(programs / f"simd_test_{level}")
