"""Prompts as requests give them: text, token ids, segments, or lists of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from radixrt.errors import InvalidRequest
from radixrt.protocol.ids import pack_ids
from radixrt.protocol.segments import Ids, Raw, Role, Segment, Text
from radixrt.text.utf8 import encode_utf8


class SegmentBody(msgspec.Struct):
    """One piece of a prompt: `text`, `raw` (special tokens recognised), `ids`, or an edge of a role's turn."""

    text: str | None = None
    raw: str | None = None
    ids: list[Any] | None = None
    role: str | None = None
    edge: Literal["begin", "end"] | None = None


class PromptFields(msgspec.Struct, kw_only=True):
    """The three ways in which native routes take prompts; a request uses exactly one."""

    segments: list[SegmentBody | list[SegmentBody]] | None = None
    """A prompt in pieces, or a list of such prompts."""
    text: Any = None
    """A rendered prompt or a list of them; special tokens are recognised."""
    input_ids: Any = None
    """Token ids, or a list of lists of them."""
    cache_salt: str | None = None
    priority: int | None = None
    lora: Any = None
    lora_path: Any = None


def prompts(given: Any, field: str) -> list[Segment]:
    """The prompts of a request; raises `InvalidRequest` for what is none."""
    if isinstance(given, str):
        return [text_prompt(given, field)]
    if isinstance(given, list) and given:
        if all(isinstance(one, str) for one in given):
            return [text_prompt(one, f"{field}[{number}]") for number, one in enumerate(given)]
        if all(isinstance(one, list) for one in given):
            return [id_prompt(one, f"{field}[{number}]") for number, one in enumerate(given)]
        return [id_prompt(given, field)]
    kind = "empty" if given == [] else f"of type {type(given).__name__}"
    raise InvalidRequest(
        f"{field} is {kind}; it must be text, a list of texts, token ids, or a list of lists of them", field=field
    )


def text_prompt(text: str, field: str) -> Segment:
    encode_utf8(text, field)
    return Raw(text)


def id_prompt(ids: Sequence[Any], field: str) -> Segment:
    """Token ids; whether the vocabulary has them is checked with the prompt."""
    for number, token in enumerate(ids):
        if not isinstance(token, int) or isinstance(token, bool):
            place = f"{field}[{number}]"
            raise InvalidRequest(f"{place} is {token!r:.80}; it must be a token id", field=place)
    try:
        return Ids(pack_ids(ids))
    except OverflowError:
        raise InvalidRequest(f"{field} has a token id that no vocabulary has", field=field) from None


def to_segments(given: Sequence[SegmentBody], field: str) -> list[Segment]:
    """A prompt's segments; raises `InvalidRequest`, naming the place, for what is none."""
    return [_segment(one, f"{field}[{number}]") for number, one in enumerate(given)]


def _segment(given: SegmentBody, field: str) -> Segment:
    kinds = [name for name in ("text", "raw", "ids", "role") if getattr(given, name) is not None]
    if len(kinds) != 1 or (given.edge is not None) != (given.role is not None):
        raise InvalidRequest(
            f"{field} must have exactly one of text, raw, ids, or role with edge (begin or end)", field=field
        )
    if given.text is not None:
        encode_utf8(given.text, f"{field}.text")
        return Text(given.text)
    if given.raw is not None:
        return text_prompt(given.raw, f"{field}.raw")
    if given.ids is not None:
        return id_prompt(given.ids, f"{field}.ids")
    assert given.role is not None
    assert given.edge is not None
    return Role(given.role, given.edge)


def given_prompts(body: PromptFields) -> tuple[str, list[list[Segment]]]:
    """The field that gives the prompts, and each prompt's segments."""
    kinds = [name for name in ("segments", "text", "input_ids") if getattr(body, name) is not None]
    if len(kinds) != 1:
        what = f"{' and '.join(kinds)} are given" if kinds else "no prompt is given"
        raise InvalidRequest(
            f"{what}; a request has exactly one of segments, text and input_ids", field=(kinds or ["text"])[-1]
        )
    if body.segments is None:
        return kinds[0], [[segment] for segment in prompts(getattr(body, kinds[0]), kinds[0])]
    single = [part for part in body.segments if isinstance(part, SegmentBody)]
    if not single and body.segments:
        batch = [part for part in body.segments if isinstance(part, list)]
        return "segments", [to_segments(one, f"segments[{number}]") for number, one in enumerate(batch)]
    if len(single) != len(body.segments):
        raise InvalidRequest("segments mixes segments and lists of them", field="segments")
    return "segments", [to_segments(single, "segments")]


def is_batch(body: PromptFields) -> bool:
    """Whether the prompts were given as a list, so that the reply is one too."""
    if body.segments is not None:
        return bool(body.segments) and isinstance(body.segments[0], list)
    if body.text is not None:
        return isinstance(body.text, list)
    return isinstance(body.input_ids, list) and bool(body.input_ids) and isinstance(body.input_ids[0], list)
