from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

import radixrt
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
    pins = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    assert pins.keys() == asked - {"radixrt"}
    installed = {name: metadata.version(name).partition("+")[0] for name in pins}
    assert installed == pins


def test_every_public_name_is_found() -> None:
    assert sorted(radixrt.__all__) == radixrt.__all__
    assert set(radixrt.__all__) <= set(dir(radixrt))
    for name in radixrt.__all__:
        assert getattr(radixrt, name) is not None


def test_type_checkers_and_python_find_a_public_name_in_the_same_module() -> None:
    tree = ast.parse((ROOT / "radixrt" / "__init__.py").read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    imports = (node for node in block.body if isinstance(node, ast.ImportFrom))
    assert {alias.name: node.module for node in imports for alias in node.names} == vars(radixrt)["_HOMES"]


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    name = "generate_everything"
    with pytest.raises(AttributeError, match=name):
        getattr(radixrt, name)


def test_a_wheel_made_by_way_of_a_source_distribution_carries_the_whole_package(tmp_path: Path) -> None:
    build: list[str | Path] = [sys.executable, "-m", "build", "--no-isolation", "--outdir", tmp_path, ROOT]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    packed = zipfile.ZipFile(wheel)
    assert {name for name in packed.namelist() if name.endswith(".py")} == {
        f"radixrt/{name}" for name, _ in package_files()
    }
    assert "radixrt/py.typed" in packed.namelist()

    site = tmp_path / "site"
    packed.extractall(site)
    # Without `site`, the editable install's hook does not run: it would lead back to the checkout.
    done = subprocess.run(
        [sys.executable, "-S", "-c", "import radixrt.lang, radixrt.kernels.interface as k; print(k.__file__)"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(site), sysconfig.get_path("purelib")))},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(done.stdout.strip()) == site / "radixrt" / "kernels" / "interface.py"


def requirement_name(requirement: str) -> str:
    """The distribution that a requirement line names: `torch>=2.6` -> `torch`."""
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found is not None
    return found.group()
