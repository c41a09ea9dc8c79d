from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from radixrt.cli.run import load_program, parse_arguments
from radixrt.errors import InvalidRequest

PROGRAM = """
import radixrt as rx

@rx.function
def poem(s, topic, lines=1):
    s += "About " + topic + ":"
    for branch in s.fork(2):
        for i in range(lines):
            branch += "\\n" + rx.gen(f"line{i}", max_tokens=4, temperature=0)
"""


@pytest.fixture
def program_file(tmp_path: Path) -> Path:
    path = tmp_path / "poems.py"
    path.write_text(PROGRAM)
    return path


def test_arguments_are_json_where_they_parse_as_such() -> None:
    digits = "9" * 5000
    assert parse_arguments(["n=3", f"id={digits}", "name=Ada", "tags=[1, 2]", "empty=", "eq=a=b"]) == {
        "n": 3,
        "id": digits,
        "name": "Ada",
        "tags": [1, 2],
        "empty": "",
        "eq": "a=b",
    }


@pytest.mark.parametrize("pair", ["novalue", "=3", "not a name=3"])
def test_an_argument_that_is_no_pair_is_refused(pair: str) -> None:
    with pytest.raises(InvalidRequest, match="not NAME=VALUE"):
        parse_arguments([pair])


def test_a_program_that_is_not_there_is_refused_with_those_that_are(program_file: Path) -> None:
    with pytest.raises(InvalidRequest, match="no program 'song'; it has: poem"):
        load_program(f"{program_file}:song")
    with pytest.raises(InvalidRequest, match=r"FILE\.py:PROGRAM"):
        load_program("nowhere.py:poem")


def test_run_prints_the_finished_tree_with_tokens_computed_and_reused(program_file: Path, tiny_llama: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "radixrt",
        "run",
        f"{program_file}:poem",
        "--arg",
        "topic=rain",
        "--arg",
        "lines=2",
    ]
    done = subprocess.run([*command, "--model", str(tiny_llama)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert 'text  "About rain:"' in done.stdout
    assert "fork  2 branches" in done.stdout
    assert done.stdout.count("gen line0") == done.stdout.count("gen line1") == 2
    assert "computed" in done.stdout
    assert "reused" in done.stdout


def test_a_mistake_is_told_in_one_line(program_file: Path) -> None:
    command = [sys.executable, "-m", "radixrt", "run", f"{program_file}:poem", "--arg", "topic=rain"]
    done = subprocess.run([*command, "--model", "/nowhere.gguf"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert done.stderr.startswith("radixrt: ")
    assert "Traceback" not in done.stderr


def test_a_dry_run_draws_what_is_known_without_a_model(program_file: Path, tmp_path: Path) -> None:
    drawing = tmp_path / "poem.svg"
    command = [sys.executable, "-m", "radixrt", "run", f"{program_file}:poem", "--dry-run", "--svg", str(drawing)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert "About {topic}:" in done.stdout
    assert "line0" in done.stdout
    assert "complete" in done.stdout
    assert drawing.read_text().startswith("<svg")
