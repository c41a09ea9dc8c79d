"""`radixrt simulate`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from radixrt.cli import app
from radixrt.errors import BackendUnavailable, InvalidRequest
from radixrt.simulate.trace import InvalidTrace


def simulate(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["simulate", *arguments])


def test_a_trace_is_replayed(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    line = {"timestamp": 0, "input_length": 1024, "output_length": 2, "hash_ids": [0, 1]}
    trace.write_text("".join(json.dumps(line | {"timestamp": 1000 * i}) + "\n" for i in range(4)))
    done = simulate(str(trace))
    assert done.exit_code == 0
    assert "4 requests, 1024 tokens in and 2 out on average" in done.output
    # 3 of 4 prompts but for their last tokens; all that is left and 4 second tokens are computed.
    assert "74.93% of the prompt tokens" in done.output
    assert done.output.split("radix-16 lpm lru")[1].split()[:2] == ["74.93", "100.0"]
    assert f" {1024 + 3 + 4} " in done.output


def test_policies_are_compared_and_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "chat.png"
    options = ("--requests", "60", "--cache-tokens", "20000", "--eviction", "lru", "--eviction", "program")
    done = simulate("--generate", "chat", *options, "--plot", str(picture))
    assert done.exit_code == 0
    assert "radix-16 lpm lru" in done.output
    assert "radix-16 lpm program" in done.output
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_plot_without_matplotlib_names_the_extra_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    done = simulate("--generate", "chat", "--plot", "chat.png")
    assert isinstance(done.exception, BackendUnavailable)
    assert "pip install 'radixrt[dev]'" in str(done.exception)


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ((), "trace"),
        (("--seed", "1"), "trace"),
        (("trace.jsonl", "--generate", "chat"), "trace"),
        (("--generate", "poems"), "generate"),
        (("--generate", "chat", "--schedule", "best"), "schedule"),
        (("--generate", "chat", "--eviction", "best"), "eviction"),
        (("--generate", "chat", "--reuse", "best"), "reuse"),
        (("--generate", "chat", "--cache-tokens", "1"), "cache_tokens"),
        (("--generate", "chat", "--plot", "chat.jpg"), "plot"),
    ],
)
def test_what_is_wrong_is_named(arguments: tuple[str, ...], field: str) -> None:
    if not arguments:
        assert simulate().exit_code == 2
        return
    done = simulate(*arguments)
    assert isinstance(done.exception, InvalidRequest)
    assert done.exception.field == field


def test_a_malformed_trace_is_told_with_its_line(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text('{"timestamp": 0, "tokens": [1], "output_length": 1}\n{"timestamp": 0, "tokens": [1]}\n')
    done = simulate(str(trace))
    assert isinstance(done.exception, InvalidTrace)
    assert str(done.exception) == "trace.jsonl, line 2: output: give it, or output_length"


def test_what_is_generated_can_be_saved_and_replayed(tmp_path: Path) -> None:
    saved = tmp_path / "agents.jsonl"
    first = simulate("--generate", "agents", "--requests", "40", "--save-trace", str(saved))
    assert first.exit_code == 0
    assert simulate(str(saved)).output == first.output
    again = simulate(str(saved), "--save-trace", str(tmp_path / "again.jsonl"))
    assert isinstance(again.exception, InvalidRequest)
    assert again.exception.field == "save_trace"
