"""Prompts as requests give them: text, token ids, segments, or lists of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from radixrt.errors import InvalidRequest, TokenizerChanged
from radixrt.protocol.ids import pack_ids
from radixrt.protocol.options import Options
from radixrt.protocol.segments import Chosen, Fork, Generated, Ids, Raw, Role, Segment, Text
from radixrt.text.tokenizer import Tokenizer
from radixrt.text.utf8 import encode_utf8


class SegmentBody(msgspec.Struct):
    """One piece of a prompt: `text`, `raw` (special tokens recognised), `ids`, or an edge of a role's turn.

    Or, for who sends a program's past: a fork point, what was generated, or a select and what was chosen.
    """

    text: str | None = None
    raw: str | None = None
    ids: list[Any] | None = None
    role: str | None = None
    edge: Literal["begin", "end"] | None = None
    fork: Literal[True] | None = None
    generated: list[Any] | None = None
    healed: int | None = None
    """With `generated`: what `meta_info.healed` said of them."""
    choices: list[str] | None = None
    chosen: int | None = None


_SEGMENT_KINDS = ("text", "raw", "ids", "role", "fork", "generated", "choices")


class PromptFields(msgspec.Struct, kw_only=True):
    """The three ways in which native routes take prompts; a request uses exactly one."""

    segments: list[SegmentBody | list[SegmentBody]] | None = None
    """A prompt in pieces, or a list of such prompts."""
    text: Any = None
    """A rendered prompt or a list of them; special tokens are recognised."""
    input_ids: Any = None
    """Token ids, or a list of lists of them."""
    tokenizer: str | None = None
    """The fingerprint of the tokenizer that ids in the prompt are of; another one's are refused."""
    steps: int | None = None
    """How many generations are still expected of the program that this one belongs to."""
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
    return Ids(_packed(ids, field))


def _packed(ids: Sequence[Any], field: str) -> bytes:
    for number, token in enumerate(ids):
        if not isinstance(token, int) or isinstance(token, bool):
            place = f"{field}[{number}]"
            raise InvalidRequest(f"{place} is {token!r:.80}; it must be a token id", field=place)
    try:
        return pack_ids(ids)
    except OverflowError:
        raise InvalidRequest(f"{field} has a token id that no vocabulary has", field=field) from None


def to_segments(given: Sequence[SegmentBody], field: str) -> list[Segment]:
    """A prompt's segments; raises `InvalidRequest`, naming the place, for what is none."""
    return [_segment(one, f"{field}[{number}]") for number, one in enumerate(given)]


def _segment(given: SegmentBody, field: str) -> Segment:
    kinds = [name for name in _SEGMENT_KINDS if getattr(given, name) is not None]
    beside = ((given.edge, given.role), (given.chosen, given.choices))
    if len(kinds) != 1 or any((one is None) != (other is None) for one, other in beside):
        raise InvalidRequest(
            f"{field} must have exactly one of text, raw, ids, role with edge (begin or end), fork, generated, or "
            "choices with chosen",
            field=field,
        )
    if given.healed is not None and (given.generated is None or given.healed < 0):
        raise InvalidRequest(
            f"{field}.healed is {given.healed}; it must be at least 0, and stand beside generated",
            field=f"{field}.healed",
        )
    if given.text is not None:
        encode_utf8(given.text, f"{field}.text")
        return Text(given.text)
    if given.raw is not None:
        return text_prompt(given.raw, f"{field}.raw")
    if given.ids is not None:
        return Ids(_packed(given.ids, f"{field}.ids"))
    if given.generated is not None:
        return Generated(_packed(given.generated, f"{field}.generated"), given.healed or 0)
    if given.fork is not None:
        return Fork()
    if given.choices is not None:
        assert given.chosen is not None
        return Chosen(Options(tuple(given.choices)), given.chosen)
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


def check_tokenizer(body: PromptFields, tokenizer: Tokenizer) -> None:
    """Raise `TokenizerChanged` if the ids in the prompt are of another tokenizer."""
    if body.tokenizer is not None and body.tokenizer != tokenizer.fingerprint:
        raise TokenizerChanged(
            f"the ids are of the tokenizer {body.tokenizer:.12}, and this model's is {tokenizer.fingerprint:.12}: "
            "begin anew from text",
            field="tokenizer",
        )


def is_batch(body: PromptFields) -> bool:
    """Whether the prompts were given as a list, so that the reply is one too."""
    if body.segments is not None:
        return bool(body.segments) and isinstance(body.segments[0], list)
    if body.text is not None:
        return isinstance(body.text, list)
    return isinstance(body.input_ids, list) and bool(body.input_ids) and isinstance(body.input_ids[0], list)
