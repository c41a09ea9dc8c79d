"""What a plain call is given, as one node; and how its result is gathered from events."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args, get_origin, get_type_hints

import msgspec

from radixrt.client.results import Choice, Generation, TokenIds, TokenScores
from radixrt.errors import InvalidRequest, error_from_wire
from radixrt.protocol.constraint import with_constraint
from radixrt.protocol.events import Failed, Finished, Piece, TextEvent, TokenLogprob
from radixrt.protocol.messages import TreeNode
from radixrt.protocol.packing import pack
from radixrt.protocol.sampling import SamplingParams, check
from radixrt.protocol.segments import Ids, Raw, Segment

Prompt: TypeAlias = str | Sequence[int] | TokenIds
"""A rendered prompt, whose special tokens are recognised, or token ids."""
Sampling: TypeAlias = SamplingParams | Mapping[str, Any] | None
"""Sampling parameters, or their names and values (`json_schema`, `regex`, ... among them); None: the defaults."""


@dataclass
class _Pieces:
    """What has come of one choice."""

    text: list[str] = field(default_factory=list)
    ids: list[bytes] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    end: Finished | None = None


class Gathering:
    """Gathers the events of one node into a `Generation`; `unpack` makes its token ids of packed ones."""

    def __init__(self, node: TreeNode, unpack: Callable[[bytes], TokenIds]) -> None:
        assert node.sampling is not None
        self._unpack = unpack
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
        end = self._pieces[0].end
        scored = None if end is None else end.prompt
        prompt = None if scored is None else TokenScores(self._unpack(scored.ids), scored.logprobs)
        return Generation(tuple(self._choice(pieces) for pieces in self._pieces), prompt)

    def _choice(self, pieces: _Pieces) -> Choice:
        assert pieces.end is not None
        return Choice(
            text="".join(pieces.text),
            ids=self._unpack(b"".join(pieces.ids)),
            finish_reason=pieces.end.reason,
            matched=pieces.end.matched,
            usage=pieces.end.usage,
            logprobs=tuple(pieces.logprobs),
            time_to_first_token=pieces.end.time_to_first_token,
            time=pieces.end.time,
        )


def plain_node(prompt: Prompt, params: SamplingParams) -> TreeNode:
    """The request tree of a plain call: one node."""
    return TreeNode(id=0, parent=None, segments=(prompt_segment(prompt),), sampling=params)


def checked_params(given: object) -> SamplingParams:
    """`Sampling` of the right types and ranges; raises `InvalidRequest` that names the field."""
    if given is None:
        return SamplingParams()
    if not isinstance(given, SamplingParams | Mapping):
        message = f"sampling_params is {given!r}; it must be a dict of names and values, or SamplingParams"
        raise InvalidRequest(message, field="sampling_params")
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


def prompt_segment(prompt: Prompt) -> Segment:
    """A prompt as a segment; raises `InvalidRequest` for what is none."""
    if isinstance(prompt, str):
        return Raw(prompt)
    try:
        return Ids(pack(map(operator.index, prompt)))
    except TypeError:
        raise InvalidRequest("a prompt is a string or a sequence of token ids", field="prompt") from None
    except OverflowError:
        raise InvalidRequest("the prompt has a token id that no vocabulary has", field="prompt") from None
