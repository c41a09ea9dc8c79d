from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

import radixrt
from radixrt import errors
from tests.import_rules import ROOT, package_files


@pytest.fixture
def project() -> dict[str, Any]:
    """The `[project]` table of pyproject.toml."""
    table: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return table


@pytest.mark.parametrize("name", ["lang", "kernels"])
def test_the_two_top_level_folders_are_linked_into_the_package_relatively(name: str) -> None:
    link = ROOT / "radixrt" / name
    assert link.is_symlink()
    assert os.readlink(link) == f"../{name}"
    assert (ROOT / name / "__init__.py").samefile(link / "__init__.py")


def test_the_installed_version_is_that_of_the_project(project: dict[str, Any]) -> None:
    assert project["version"] == metadata.version("radixrt") == radixrt.__version__


def test_the_shell_command_starts_the_cli() -> None:
    (command,) = metadata.entry_points(group="console_scripts", name="radixrt")
    assert command.value == "radixrt.cli:main"
    assert callable(command.load())


def test_the_base_install_asks_for_neither_torch_nor_a_tokenizer(project: dict[str, Any]) -> None:
    base = {requirement_name(line) for line in project["dependencies"]}
    assert base == {"httpx", "msgspec", "rich", "typer"}
    assert {"torch", "tokenizers", "numpy", "pyzmq"} <= {
        requirement_name(line) for line in project["optional-dependencies"]["server"]
    }


def test_the_constraints_pin_every_direct_dependency_to_what_runs_here(project: dict[str, Any]) -> None:
    extras = project["optional-dependencies"]
    asked = {requirement_name(line) for line in project["dependencies"] + extras["server"] + extras["dev"]}
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [Requirement(line) for line in lines if line and not line.startswith("#")]
    assert {pin.name for pin in pins} == asked - {"radixrt"}
    assert [str(pin) for pin in pins if metadata.version(pin.name) not in pin.specifier] == []
    # Of every other there is one release: torch asks for one of Triton's, another in each build of its own.
    assert [pin.name for pin in pins if not str(pin.specifier).startswith("==")] == ["triton"]


def test_every_public_name_is_found() -> None:
    assert sorted(radixrt.__all__) == radixrt.__all__
    assert set(radixrt.__all__) <= set(dir(radixrt))
    for name in radixrt.__all__:
        assert getattr(radixrt, name) is not None


def test_every_error_is_public() -> None:
    kinds = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, Exception)}
    assert "QueueFull" in kinds
    assert kinds <= set(radixrt.__all__)


def test_type_checkers_and_python_find_a_public_name_in_the_same_module() -> None:
    tree = ast.parse((ROOT / "radixrt" / "__init__.py").read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    imports = (node for node in block.body if isinstance(node, ast.ImportFrom))
    assert {alias.name: node.module for node in imports for alias in node.names} == vars(radixrt)["_HOMES"]


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    name = "generate_everything"
    with pytest.raises(AttributeError, match=name):
        getattr(radixrt, name)


def test_an_install_without_a_compiler_carries_the_whole_package_and_runs_on_the_reference(tmp_path: Path) -> None:
    packed, said = build_wheel(tmp_path, compiler=False)
    assert "no C++ compiler: the native CPU kernels are left out" in said
    assert {name for name in packed.namelist() if name.endswith(".py")} == {
        f"radixrt/{name}" for name, _ in package_files()
    }
    assert "radixrt/py.typed" in packed.namelist()
    assert foreign_to_a_wheel(packed) == set()

    site = tmp_path / "site"
    packed.extractall(site)
    done = run_from(
        site,
        "import torch, radixrt.lang",
        "from radixrt.kernels import interface, registry",
        "kernels = registry.load_backend()",
        "gate_up = torch.ones(3, 8, dtype=kernels.dtype)",
        "print(interface.__file__, kernels.name, *kernels.silu_multiply(gate_up).shape, sep='|')",
        "print(registry.choose().reason)",
    )
    first, reason = done.splitlines()
    assert first == f"{site / 'radixrt' / 'kernels' / 'interface.py'}|reference|3|4"
    assert "cpu kernels cannot run here: they were not built" in reason


@pytest.mark.long
def test_a_wheel_carries_the_native_module_once_and_none_of_its_sources(tmp_path: Path) -> None:
    if shutil.which("c++") is None:
        pytest.skip("no C++ compiler")
    packed, _ = build_wheel(tmp_path, compiler=True)
    (module,) = foreign_to_a_wheel(packed)
    assert module.startswith("radixrt/kernels/cpu/_native.")
    site = tmp_path / "site"
    packed.extractall(site)
    done = run_from(
        site, "from radixrt.kernels.cpu import _native", "print(_native.__file__, _native.Kernels(1, 'portable').level)"
    )
    assert done.split() == [str(site / module), "portable"]


def build_wheel(folder: Path, compiler: bool) -> tuple[zipfile.ZipFile, str]:
    """A wheel made by way of a source distribution, and what the build said."""
    env = dict(os.environ)
    if not compiler:
        env.pop("CXX", None)
        tools = folder / "tools"
        tools.mkdir()
        ninja = shutil.which("ninja", path=os.pathsep.join((sysconfig.get_path("scripts"), env["PATH"])))
        assert ninja is not None
        (tools / "ninja").symlink_to(ninja)
        env["PATH"] = str(tools)
    command: list[str | Path] = [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT]
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
    (wheel,) = folder.glob("*.whl")
    return zipfile.ZipFile(wheel), done.stdout


def foreign_to_a_wheel(packed: zipfile.ZipFile) -> set[str]:
    """What it carries of the package besides Python and its types."""
    names = {name for name in packed.namelist() if name.startswith("radixrt/") and not name.endswith(".py")}
    return names - {"radixrt/py.typed", "radixrt/kernels/cpu/_native.pyi"}


def run_from(site: Path, *lines: str) -> str:
    """What a program prints that imports radixrt from `site`, and the rest from here."""
    # Without Python's own `site`, the editable install's hook does not run: it would lead back to the checkout.
    done = subprocess.run(
        [sys.executable, "-S", "-c", "\n".join(lines)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(site), *libraries()))},
        cwd=site,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def libraries() -> list[str]:
    """Folders of installed packages."""
    return [path for path in sys.path if path.endswith("site-packages")]


def requirement_name(requirement: str) -> str:
    """The distribution that a requirement line names: `torch>=2.6` -> `torch`."""
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found is not None
    return found.group()
