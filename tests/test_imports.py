from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.import_rules import (
    PARTS,
    ROOT,
    TORCH_FREE,
    allowed,
    imports_bare_folder,
    module_name,
    package_files,
    part_of,
    violations,
)

NEEDS = {
    "radixrt.kernels.cpu": "radixrt.kernels.cpu._native",
    "radixrt.kernels.flashinfer": "flashinfer",
    "radixrt.kernels.triton": "triton",
}
"""What has to be there, and not everywhere is, for the modules of a package to be imported."""

OUTSIDE_THE_PACKAGE = ("tests", "examples", "benchmarks")


def run_python(code: str, folder: Path) -> str:
    """What a fresh interpreter, started in `folder` (outside the checkout), prints."""
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def modules(parts: set[str]) -> list[str]:
    """Modules of these parts that can be imported here without running a program."""
    absent = tuple(package for package, needed in NEEDS.items() if find_spec(needed) is None)
    names = (module_name(inside) for inside, _ in package_files())
    return sorted(n for n in names if not n.endswith("__main__") and part_of(n) in parts and not n.startswith(absent))


def test_every_file_of_the_package_keeps_the_import_directions() -> None:
    files = dict(package_files())
    assert {"__init__.py", "errors.py", "lang/__init__.py", "kernels/interface.py"} <= files.keys()
    assert [v for inside, path in sorted(files.items()) for v in violations(inside, path.read_text())] == []


def test_an_arrow_includes_what_lies_behind_it() -> None:
    shared = {"protocol", "errors", "config"}
    assert allowed("cli") == PARTS
    assert allowed("server") == {"server", "lang", "client", "text"} | shared
    assert allowed("lang") == {"lang", "client", "text"} | shared
    assert allowed("worker") == {"worker", "scheduler", "cache", "grammar", "model", "kernels", "text"} | shared
    assert allowed("model") == {"model", "kernels", "text"} | shared
    assert allowed("protocol") == shared
    assert allowed("kernels") == {"kernels", "errors", "config"}


@pytest.mark.parametrize(
    ("inside", "source", "complaint"),
    [
        ("lang/run.py", "import radixrt.worker.engine", "lang may not import worker"),
        ("lang/run.py", "from radixrt import worker", "lang may not import worker"),
        ("client/zmq.py", "def start():\n    from radixrt.worker import Engine", "client may not import worker"),
        ("client/zmq.py", "from radixrt.lang import gen", "client may not import lang"),
        ("text/a.py", "from radixrt.client.backend import Session", "text may not import client"),
        ("cache/a.py", "import radixrt.scheduler", "cache may not import scheduler"),
        ("scheduler/a.py", "import radixrt.model", "scheduler may not import model"),
        ("model/a.py", "import radixrt.cache", "model may not import cache"),
        ("worker/a.py", "import radixrt.client", "worker may not import client"),
        ("kernels/a.py", "from radixrt.protocol.plan import StepPlan", "kernels may not import protocol"),
        ("protocol/a.py", "import radixrt.text", "protocol may not import text"),
        ("errors.py", "import radixrt.protocol.ids", "errors may not import protocol"),
        ("lang/a.py", "import radixrt", "lang may not import cli"),
        ("lang/a.py", "from radixrt import Runtime", "lang may not import cli"),
        ("client/a.py", "if TYPE_CHECKING:\n    import radixrt.worker", "client may not import worker"),
        ("client/a.py", "importlib.import_module('radixrt.worker')", "client may not import worker"),
        ("lang/a.py", "import_module(name)", "cannot be read"),
        ("cache/a.py", "import torch", "cache imports no torch"),
        ("text/a.py", "def load():\n    from torch.nn import functional", "text imports no torch"),
        ("client/a.py", "from safetensors import torch", "client imports no torch"),
        ("worker/a.py", "from . import engine", "a relative import"),
        ("worker/a.py", "from ..lang import gen", "a relative import"),
        ("worker/a.py", "import kernels.interface", "must be imported as radixrt.kernels.interface"),
        ("cli.py", "from lang import gen", "must be imported as radixrt.lang.gen"),
        ("novelty/a.py", "", "no rule says"),
    ],
)
def test_a_planted_violation_is_found_with_its_line(inside: str, source: str, complaint: str) -> None:
    (found,) = violations(inside, source)
    assert found.startswith(f"{inside}:{max(1, source.count(chr(10)) + 1)}: ")
    assert complaint in found


@pytest.mark.parametrize(
    ("inside", "source"),
    [
        ("__init__.py", "import radixrt.worker\nimport_module(name)"),
        ("cli.py", "from radixrt import Runtime"),
        ("server/app.py", "from radixrt.lang import gen\nfrom radixrt.text import frontend"),
        (
            "worker/a.py",
            "import torch\nfrom radixrt.cache.tree import Tree\nfrom radixrt.protocol.plan import StepPlan",
        ),
        ("kernels/__init__.py", "import_module(f'radixrt.kernels.{name}')\nfrom radixrt.errors import RadixError"),
        ("config.py", "from radixrt.errors import InvalidRequest"),
        ("lang/a.py", "from radixrt.protocol import segments\nimport language, torchlight"),
    ],
)
def test_what_the_arrows_allow_is_not_reported(inside: str, source: str) -> None:
    assert violations(inside, source) == []


def test_no_test_example_or_benchmark_imports_a_bare_folder() -> None:
    assert imports_bare_folder("def f():\n    from lang.run import run")
    assert not imports_bare_folder("from radixrt.lang import gen")
    files = [path for folder in OUTSIDE_THE_PACKAGE for path in (ROOT / folder).rglob("*.py")]
    assert Path(__file__).resolve() in files
    assert [str(path) for path in files if imports_bare_folder(path.read_text())] == []


def test_the_dsl_loads_without_torch_numpy_tokenizers_or_zmq(tmp_path: Path) -> None:
    heavy = {"torch", "numpy", "tokenizers", "zmq", "transformers"}
    code = f"import sys, radixrt, radixrt.lang; radixrt.gen; print(sorted({heavy!r} & sys.modules.keys()))"
    assert run_python(code, tmp_path) == "[]"


def test_the_torch_free_parts_load_without_torch(tmp_path: Path) -> None:
    names = modules(TORCH_FREE)
    assert {"radixrt.errors", "radixrt.protocol.plan", "radixrt.lang"} <= set(names)
    assert run_python(f"import sys, {', '.join(names)}; print('torch' in sys.modules)", tmp_path) == "False"


def test_each_file_of_the_package_is_loaded_under_one_name_only(tmp_path: Path) -> None:
    names = modules(PARTS)
    assert {"radixrt", "radixrt.kernels.interface", "radixrt.lang"} <= set(names)
    code = f"""
import os, sys
import {", ".join(names)}
assert sys.modules.keys() >= {set(names)!r}
print([name for name in sys.modules if name.split(".")[0] in ("lang", "kernels")])
files = [os.path.realpath(m.__file__) for n, m in sys.modules.items() if n.split(".")[0] == "radixrt"]
print(len(files) - len(set(files)))
"""
    assert run_python(code, tmp_path).splitlines() == ["[]", "0"]
