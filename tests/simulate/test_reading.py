"""Traces in JSON lines, and what is wrong with some."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from radixrt.errors import InvalidRequest
from radixrt.simulate.generators import GENERATORS, generate
from radixrt.simulate.reading import parse, read_trace
from radixrt.simulate.trace import InvalidTrace
from radixrt.simulate.writing import write_trace

HASHED = {"timestamp": 3000, "input_length": 1100, "output_length": 4, "hash_ids": [9, 2**40, 7]}
OWN = {"timestamp": 1500, "tokens": [1, 2, 3], "output": [4, 5], "id": "a"}


def lines(*objects: object) -> list[bytes]:
    return [json.dumps(line).encode() + b"\n" for line in objects]


def test_equal_hash_ids_are_equal_tokens_and_others_are_others() -> None:
    other = HASHED | {"hash_ids": [9, 2**40, 8]}
    first, second = (request.prompt.ids() for request in parse(lines(HASHED, other), "t"))
    assert len(first) == len(second) == 1100
    assert (first[:1024] == second[:1024]).all()
    assert len(np.unique(np.concatenate([first, second[1024:]]))) == 1100 + 76


def test_a_mooncake_line_is_read() -> None:
    (request,) = parse(lines(HASHED), "t")
    assert request.arrival == 3.0
    assert len(request.output) == 4
    assert request.output.max() < 0
    assert (request.program, request.parent, request.tenant) == (None, None, None)


def test_outputs_that_are_not_known_share_nothing() -> None:
    first, second = (request.output for request in parse(lines(HASHED, HASHED), "t"))
    assert first[0] != second[0]


def test_a_line_of_our_own_is_read() -> None:
    child = {
        "timestamp": 0,
        "tokens": [1],
        "output_length": 7,
        "parent": "a",
        "program": 5,
        "pause": 250,
        "tenant": "x",
    }
    first, second = parse([*lines(OWN), b"\n", *lines(child)], "t")
    assert first.prompt.ids().tolist() == [1, 2, 3]
    assert first.output.tolist() == [4, 5]
    assert first.arrival == 1.5
    assert (second.parent, second.program, second.pause, second.tenant) == (0, "5", 0.25, "x")
    assert len(second.output) == 7


@pytest.mark.parametrize(
    ("line", "field"),
    [
        (HASHED | {"input_length": "many"}, "input_length"),
        (HASHED | {"input_length": 0}, "input_length"),
        (HASHED | {"output_length": 0}, "output_length"),
        (HASHED | {"timestamp": -1}, "timestamp"),
        (HASHED | {"hash_ids": [1, 2]}, "hash_ids"),
        (HASHED | {"hash_ids": [1, 2, None]}, "hash_ids"),
        ({"timestamp": 1, "hash_ids": [1], "output_length": 1}, "input_length"),
        (OWN | {"tokens": []}, "tokens"),
        (OWN | {"tokens": [1, -1]}, "tokens"),
        (OWN | {"tokens": [2**31]}, "tokens"),
        (OWN | {"output": []}, "output"),
        (OWN | {"output": None}, "output"),
        (OWN | {"output_length": 3}, "output_length"),
        (OWN | {"parent": "b"}, "parent"),
        (OWN | {"parent": "a"}, "parent"),
        (OWN | {"speed": 1}, "speed"),
        (OWN | {"pause": -5}, "pause"),
        (OWN | {"priority": 0.5}, "priority"),
        ([1, 2], None),
    ],
)
def test_a_malformed_line_is_told_with_its_number_and_field(line: object, field: str | None) -> None:
    with pytest.raises(InvalidTrace, match=r"^trace\.jsonl, line 2: ") as caught:
        parse(lines(OWN | {"id": "first"}, line), "trace.jsonl")
    assert caught.value.field == field
    assert field is None or field in caught.value.message


def test_two_lines_with_one_id_are_refused() -> None:
    with pytest.raises(InvalidTrace, match="line 2: id: 'a' is that of an earlier line"):
        parse(lines(OWN, OWN), "t")


@pytest.mark.parametrize("line", [b"{", b"\xff\xfe", b'{"timestamp": 1e999}'])
def test_what_is_not_json_is_refused_with_its_line(line: bytes) -> None:
    with pytest.raises(InvalidTrace, match="line 1"):
        parse([line], "t")


def test_a_file_that_is_not_there_or_is_empty_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidTrace, match="No such file"):
        read_trace(tmp_path / "none.jsonl")
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(InvalidTrace, match="has no requests"):
        read_trace(tmp_path / "empty.jsonl")


@pytest.mark.parametrize("kind", GENERATORS)
def test_a_generated_trace_is_read_back_as_it_was(kind: str, tmp_path: Path) -> None:
    trace = generate(kind, 60, 3, 5.0)
    write_trace(tmp_path / "trace.jsonl", trace)
    again = read_trace(tmp_path / "trace.jsonl")
    assert len(again) == 60
    for one, other in zip(trace, again, strict=True):
        assert one.prompt.ids().tolist() == other.prompt.ids().tolist()
        assert one.output.tolist() == other.output.tolist()
        assert (one.program, one.parent, one.tenant, one.priority) == (
            other.program,
            other.parent,
            other.tenant,
            other.priority,
        )
        assert (one.arrival, one.pause) == pytest.approx((other.arrival, other.pause), rel=1e-12)


def test_a_trace_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="nowhere") as caught:
        write_trace(tmp_path / "nowhere" / "trace.jsonl", generate("chat", 3, 0, 1.0))
    assert caught.value.field == "save_trace"
