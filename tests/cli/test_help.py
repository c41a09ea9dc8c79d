"""Help is quick and is there without the runtime; a command that needs the runtime says so."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions

import click
import pytest
import typer
from typer.testing import CliRunner

from radixrt.cli import app
from radixrt.cli.extras import SERVER_MODULES, missing_extra
from tests.import_rules import ROOT

WITHOUT_THE_EXTRA = f"""
import sys

class Without:
    def __init__(self, finder):
        self.finder = finder

    def __getattr__(self, name):
        return getattr(self.finder, name)

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {set(SERVER_MODULES)!r}:
            return None
        return self.finder.find_spec(name, path, target)

sys.meta_path[:] = [Without(finder) for finder in sys.meta_path if hasattr(finder, "find_spec")]
from radixrt.cli import main
sys.argv[0] = "radixrt"
main()
"""


def without_the_extra(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The shell on a machine that has the base install only."""
    command = [sys.executable, "-c", WITHOUT_THE_EXTRA, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, input="")


def commands() -> dict[str, list[str]]:
    """The words of every command, by what the user calls it."""
    found: list[list[str]] = []

    def collect(command: click.Command, words: list[str]) -> None:
        children = getattr(command, "commands", {})
        for name, child in children.items():
            collect(child, [*words, name])
        if not children:
            found.append(words)

    collect(typer.main.get_command(app), [])
    return {" ".join(words): words for words in found}


@pytest.mark.parametrize("words", commands().values(), ids=commands().keys())
def test_every_command_has_a_help_with_an_example(words: list[str]) -> None:
    done = CliRunner().invoke(app, [*words, "--help"])
    assert done.exit_code == 0
    assert re.search(rf"Examples?:\s+.*radixrt {' '.join(words)}", done.output, re.DOTALL)


def test_help_loads_nothing_heavy() -> None:
    code = f"""
import sys
from typer.testing import CliRunner
from radixrt.cli import app
for words in {list(commands().values())!r}:
    assert CliRunner().invoke(app, [*words, "--help"]).exit_code == 0
print(sorted({set(SERVER_MODULES) | {"openai", "transformers", "asyncio"}!r} & sys.modules.keys()))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "[]"


def test_the_extra_brings_the_modules_that_are_looked_for() -> None:
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["server"]
    wanted = {_distribution(re.split("[^A-Za-z0-9_-]", line)[0]) for line in extra}
    brought = {
        module
        for module, distributions in packages_distributions().items()
        if {_distribution(name) for name in distributions} & wanted and module in SERVER_MODULES
    }
    assert brought == SERVER_MODULES
    assert len(wanted) == len(SERVER_MODULES)


def test_help_is_there_without_the_runtime() -> None:
    done = without_the_extra("--help")
    assert done.returncode == 0, done.stderr
    assert "doctor" in done.stdout
    assert without_the_extra("chat", "--help").returncode == 0


def test_a_command_that_needs_the_runtime_says_how_to_get_it() -> None:
    done = without_the_extra("chat")
    assert done.returncode == 1
    assert done.stderr.startswith("radixrt: ")
    assert "pip install 'radixrt[server]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_module_that_no_extra_brings_is_no_matter_of_installing() -> None:
    assert missing_extra(ModuleNotFoundError("No module named 'mine'", name="mine")) is None
    told = missing_extra(ModuleNotFoundError("No module named 'zmq.asyncio'", name="zmq.asyncio"))
    assert told is not None
    assert "zmq" in told


def test_the_version_is_printed() -> None:
    assert re.fullmatch(r"radixrt \d+\.\d+\.\d+\n", CliRunner().invoke(app, ["--version"]).output)


def _distribution(name: str) -> str:
    """A distribution's name as an index compares it."""
    return name.lower().replace("_", "-")
