"""The examples run as they stand: on a tiny model for their plumbing, on the default one for what they show."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.import_rules import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
NAMES = [path.stem for path in EXAMPLES]


def run(name: str, *arguments: str | Path) -> str:
    """What the example prints; it must succeed."""
    command = [sys.executable, ROOT / "examples" / f"{name}.py", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_there_are_examples() -> None:
    assert {"few_shot_agents", "agent_tools", "tree_of_thought", "json_over_http"} <= set(NAMES)


@pytest.mark.parametrize("path", EXAMPLES, ids=NAMES)
def test_an_example_says_at_its_top_what_it_shows_and_how_to_run_it(path: Path) -> None:
    told = ast.get_docstring(ast.parse(path.read_text())) or ""
    assert len(told.partition("\n")[0]) > 30
    assert f"python examples/{path.name}" in told


def test_agents_call_only_tools_that_there_are(tiny_llama: Path) -> None:
    printed = run("agent_tools", "--model", tiny_llama, "How much is the ferry?")
    steps = [line.split(":", 1)[1].strip() for line in printed.splitlines() if line.strip().startswith("Step:")]
    assert steps
    assert all(step.startswith(("look up ", "calculate ", "answer ")) for step in steps)
    assert "prompt tokens came from the prefix cache" in printed


def test_a_tree_of_thought_draws_every_thought_and_goes_on_with_one_a_level(tiny_llama: Path) -> None:
    printed = run("tree_of_thought", "--model", tiny_llama, "--width", "2", "--depth", "2")
    assert sum(line.lstrip("│├└─ ")[:1] in ("+", "-") for line in printed.splitlines()) == 4


def test_a_server_answers_the_json_example_with_what_the_schema_accepts(tiny_llama: Path) -> None:
    printed = run("json_over_http", "--model", tiny_llama)
    assert "Boat(" in printed
    assert "validated by Pydantic" in printed


@pytest.mark.long
def test_the_ten_agents_all_give_a_valid_entry() -> None:
    printed = run("few_shot_agents")
    assert "10 entries, each validated" in printed
    assert "without it: 1 agents" in printed


@pytest.mark.long
def test_the_agents_with_tools_work_out_what_tickets_cost() -> None:
    printed = run("agent_tools")
    assert "24 crowns" in printed
    assert "77 crowns" in printed


@pytest.mark.long
@pytest.mark.parametrize("name", ["tree_of_thought", "json_over_http"])
def test_an_example_runs_on_the_default_model(name: str) -> None:
    assert run(name)
