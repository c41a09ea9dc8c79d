"""What a plain call gives back, and how it is gathered from events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args, get_origin, get_type_hints

import msgspec
import numpy as np

from radixrt.errors import InvalidRequest, error_from_wire
from radixrt.protocol.constraint import with_constraint
from radixrt.protocol.events import Failed, Finished, FinishReason, Piece, TextEvent, TokenLogprob, Usage
from radixrt.protocol.ids import IdArray, pack_ids, unpack_ids
from radixrt.protocol.messages import TreeNode
from radixrt.protocol.sampling import SamplingParams, check
from radixrt.protocol.segments import Ids, Raw, Segment

Prompt: TypeAlias = str | Sequence[int] | IdArray
"""A rendered prompt, whose special tokens are recognised, or token ids."""
Sampling: TypeAlias = SamplingParams | Mapping[str, Any] | None
"""Sampling parameters, or their names and values (`json_schema`, `regex`, ... among them); None: the defaults."""


@dataclass(frozen=True, eq=False)
class Choice:
    """One completion of a prompt."""

    text: str
    ids: IdArray
    """Every token generated: also those of an end of turn or stop string that `text` leaves out."""
    finish_reason: FinishReason
    matched: int | str | None
    """With `stop`: the token id or the string that ended it."""
    usage: Usage
    logprobs: tuple[TokenLogprob, ...]
    """One for each of `ids`, if asked for."""
    time_to_first_token: float
    """Seconds from submission, as the worker measured them."""
    time: float
    """Seconds from submission to the last token."""


@dataclass(frozen=True, eq=False)
class Generation:
    """The `n` choices of one prompt. With n = 1, the usual case, read the only one's fields right here."""

    choices: tuple[Choice, ...]

    @property
    def text(self) -> str:
        return self.choices[0].text

    @property
    def ids(self) -> IdArray:
        return self.choices[0].ids

    @property
    def finish_reason(self) -> FinishReason:
        return self.choices[0].finish_reason

    @property
    def matched(self) -> int | str | None:
        return self.choices[0].matched

    @property
    def usage(self) -> Usage:
        return self.choices[0].usage

    @property
    def logprobs(self) -> tuple[TokenLogprob, ...]:
        return self.choices[0].logprobs

    @property
    def time_to_first_token(self) -> float:
        return self.choices[0].time_to_first_token

    @property
    def time(self) -> float:
        return self.choices[0].time


@dataclass
class _Pieces:
    """What has come of one choice."""

    text: list[str] = field(default_factory=list)
    ids: list[bytes] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    end: Finished | None = None


class Gathering:
    """Gathers the events of one node into a `Generation`."""

    def __init__(self, node: TreeNode) -> None:
        assert node.sampling is not None
        self._pieces = [_Pieces() for _ in range(node.sampling.n)]
        self._open = node.sampling.n

    @property
    def complete(self) -> bool:
        """Whether every choice has ended."""
        return self._open == 0

    def add(self, event: TextEvent) -> None:
        """Take in an event; that of a failure is raised as the error that it carries."""
        pieces = self._pieces[event.choice]
        match event:
            case Piece():
                pieces.text.append(event.text)
                pieces.ids.append(event.ids)
                pieces.logprobs += event.logprobs
            case Finished():
                pieces.end = event
                self._open -= 1
            case Failed(kind=kind, message=message, field=name):
                raise error_from_wire(kind, message, name)

    def generation(self) -> Generation:
        """The result, once complete."""
        return Generation(tuple(_choice(pieces) for pieces in self._pieces))


def plain_node(prompt: Prompt, params: SamplingParams) -> TreeNode:
    """The request tree of a plain call: one node."""
    return TreeNode(id=0, parent=None, segments=(prompt_segment(prompt),), sampling=params)


def checked_params(given: Sampling) -> SamplingParams:
    """Sampling parameters of the right types and ranges; raises `InvalidRequest` that names the field."""
    if given is None:
        return SamplingParams()
    # A msgspec struct checks types when it is decoded, not when it is made: both ways in go through `convert`.
    values = msgspec.structs.asdict(given) if isinstance(given, SamplingParams) else with_constraint(given)
    try:
        params = msgspec.convert(values, SamplingParams)
    except msgspec.ValidationError as error:
        raise invalid(SamplingParams, error) from error
    check(params)
    return params


def invalid(struct: type[msgspec.Struct], error: msgspec.ValidationError) -> InvalidRequest:
    """The `InvalidRequest` for values that are no `struct`: it names the field and says what is allowed."""
    problem, _, place = str(error).partition(" - at `$")
    name = place.strip("`.") or None
    types = get_type_hints(struct)
    if name is None:
        return InvalidRequest(f"{problem}; the fields are {', '.join(types)}")
    message = f"{name}: {problem}"
    if get_origin(types.get(name)) is Literal:
        message += f"; it must be one of {', '.join(get_args(types[name]))}"
    return InvalidRequest(message, field=name)


def _choice(pieces: _Pieces) -> Choice:
    assert pieces.end is not None
    return Choice(
        text="".join(pieces.text),
        ids=unpack_ids(b"".join(pieces.ids)),
        finish_reason=pieces.end.reason,
        matched=pieces.end.matched,
        usage=pieces.end.usage,
        logprobs=tuple(pieces.logprobs),
        time_to_first_token=pieces.end.time_to_first_token,
        time=pieces.end.time,
    )


def prompt_segment(prompt: Prompt) -> Segment:
    """A prompt as a segment; raises `InvalidRequest` for what is none."""
    if isinstance(prompt, str):
        return Raw(prompt)
    if any(not isinstance(token, int | np.integer) for token in prompt):
        raise InvalidRequest("a prompt is a string or a sequence of token ids", field="prompt")
    try:
        return Ids(pack_ids(prompt))
    except OverflowError:
        raise InvalidRequest("the prompt has a token id that no vocabulary has", field="prompt") from None
