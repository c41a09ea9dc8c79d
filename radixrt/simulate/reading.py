"""Traces in JSON lines: the public Mooncake format, and our own with token ids.

Mooncake: `timestamp` (milliseconds), `input_length`, `output_length`, `hash_ids`, one for each 512 tokens.

Our own: `timestamp` (milliseconds), `tokens`, and either `output` (token ids) or `output_length`; where known also
`id`, `program`, `parent` (the `id` of an earlier line), `pause` (milliseconds after the parent's end), `tenant`
and `priority`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, TypeAlias

import msgspec

from radixrt.protocol.ids import IdArray, as_ids
from radixrt.simulate.trace import BLOCK_TOKENS, MOST_BLOCKS, Blocks, InvalidTrace, Pieces, TraceRequest, made_up_output

_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
_Token: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
_Milliseconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1e15)]
_Name: TypeAlias = int | str


class _Known(msgspec.Struct):
    """Whether a line is of the one format or the other."""

    hash_ids: msgspec.Raw = msgspec.Raw()


class _Hashed(msgspec.Struct):
    """A line of a Mooncake trace."""

    timestamp: _Milliseconds
    input_length: _Count
    output_length: _Count
    hash_ids: list[int]


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    """A line of our own."""

    timestamp: _Milliseconds
    tokens: Annotated[list[_Token], msgspec.Meta(min_length=1)]
    output: Annotated[list[_Token], msgspec.Meta(min_length=1)] | None = None
    output_length: _Count | None = None
    id: _Name | None = None
    program: _Name | None = None
    parent: _Name | None = None
    pause: _Milliseconds = 0.0
    tenant: str | None = None
    priority: Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)] = 0


def read_trace(path: Path) -> list[TraceRequest]:
    """The requests of a file, in its order; raises `InvalidTrace`, naming line and field, where one is malformed."""
    try:
        with path.open("rb") as file:
            return parse(file, path.name)
    except OSError as error:
        raise InvalidTrace(f"{path}: {error.strerror or error}", field="trace") from None


def parse(lines: Iterable[bytes], name: str) -> list[TraceRequest]:
    """As `read_trace`; `name` stands in the messages."""
    reader = _Reader()
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                reader.read(line)
            except InvalidTrace as error:
                raise InvalidTrace(f"{name}, line {number}: {error.message}", field=error.field) from None
    if not reader.trace:
        raise InvalidTrace(f"{name} has no requests", field="trace")
    return reader.trace


class _Reader:
    """Lines to requests. Hash ids, of any size, are numbered in the order in which they come."""

    def __init__(self) -> None:
        self.trace: list[TraceRequest] = []
        self._blocks: dict[int, int] = {}
        self._places: dict[_Name, int] = {}

    def read(self, line: bytes) -> None:
        try:
            if bytes(msgspec.json.decode(line, type=_Known).hash_ids):
                self._add_hashed(msgspec.json.decode(line, type=_Hashed))
            else:
                self._add(msgspec.json.decode(line, type=_Line))
        except msgspec.ValidationError as error:
            field = _field_of(str(error))
            raise InvalidTrace(f"{field or 'not a request'}: {error}", field=field) from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InvalidTrace(f"not JSON: {error}", field=None) from None

    def _add_hashed(self, line: _Hashed) -> None:
        tokens, needed = line.input_length, -(-line.input_length // BLOCK_TOKENS)
        if len(line.hash_ids) != needed:
            raise InvalidTrace(
                f"hash_ids has {len(line.hash_ids)} ids; {tokens} tokens are {needed} blocks of {BLOCK_TOKENS}",
                field="hash_ids",
            )
        numbers = [self._blocks.setdefault(block, len(self._blocks)) for block in line.hash_ids]
        if len(self._blocks) > MOST_BLOCKS:
            raise InvalidTrace(f"hash_ids: a trace may have {MOST_BLOCKS} different ones, no more", field="hash_ids")
        output = made_up_output(len(self.trace), line.output_length)
        self.trace.append(TraceRequest(line.timestamp / 1000, Blocks(numbers, line.input_length), output))

    def _add(self, line: _Line) -> None:
        place = len(self.trace)
        parent = None
        if line.parent is not None:
            parent = self._places.get(line.parent)
            if parent is None:
                raise InvalidTrace(f"parent: no earlier line has the id {line.parent!r}", field="parent")
        if line.id is not None and self._places.setdefault(line.id, place) != place:
            raise InvalidTrace(f"id: {line.id!r} is that of an earlier line", field="id")
        program = None if line.program is None else str(line.program)
        self.trace.append(
            TraceRequest(
                line.timestamp / 1000,
                Pieces(as_ids(line.tokens)),
                _output(line, place),
                program,
                parent,
                line.pause / 1000,
                line.tenant,
                line.priority,
            )
        )


def _output(line: _Line, place: int) -> IdArray:
    if line.output is not None:
        if line.output_length not in (None, len(line.output)):
            raise InvalidTrace(
                f"output_length is {line.output_length}, but output has {len(line.output)} ids", field="output_length"
            )
        return as_ids(line.output)
    if line.output_length is None:
        raise InvalidTrace("output: give it, or output_length", field="output")
    return made_up_output(place, line.output_length)


def _field_of(message: str) -> str | None:
    """The field that a message of msgspec's is about."""
    found = re.search(r"at `\$\.(\w+)", message) or re.search(r"field `(\w+)`", message)
    return found[1] if found else None
