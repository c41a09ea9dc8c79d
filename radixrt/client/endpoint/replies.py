"""What a server replies, as the events that an embedded worker tells."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Literal, TypeVar

import msgspec

from radixrt.client.endpoint.errors import ErrorBody
from radixrt.errors import InternalError
from radixrt.protocol.events import Finished, Logprobs, Piece, ScoredTokens, Scores, TokenLogprob, Usage
from radixrt.protocol.packing import pack

T = TypeVar("T")


class FinishReason(msgspec.Struct):
    type: Literal["stop", "length"]
    matched: int | str | None = None


class Entry(msgspec.Struct, array_like=True):
    """A token's log-probability, and its text if that was asked for."""

    logprob: float | None
    token: int
    text: str | None = None


class Meta(msgspec.Struct):
    """`meta_info`."""

    finish_reason: FinishReason | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    time_to_first_token: float = 0.0
    e2e_latency: float = 0.0
    context_ids: list[int] = []
    healed: int = 0
    input_token_logprobs: list[Entry] | None = None
    output_token_logprobs: list[Entry] = []
    output_top_logprobs: list[list[Entry]] = []


class Chunk(msgspec.Struct):
    """An event of a stream of `/generate`: what is new of one choice, its end, or an error, which ends the stream."""

    index: int = 0
    text: str = ""
    output_ids: list[int] = []
    meta_info: Meta = msgspec.field(default_factory=Meta)
    tokenizer: str = ""
    error: ErrorBody | None = None

    def piece(self, node: int) -> Piece | None:
        """What is new, if anything is."""
        if not self.text and not self.output_ids:
            return None
        meta = self.meta_info
        entries = meta.output_token_logprobs
        tops = meta.output_top_logprobs or [[]] * len(entries)
        logprobs = tuple(
            TokenLogprob(entry.token, entry.logprob or 0.0, tuple((one.token, one.logprob or 0.0) for one in top))
            for entry, top in zip(entries, tops, strict=True)
        )
        texts = _texts(entries, *tops)
        return Piece(0, node, self.index, self.text, pack(self.output_ids), logprobs, texts)

    def end(self, node: int, ids: list[int]) -> Finished | None:
        """The end of the choice, whose tokens are `ids`, if it is."""
        meta = self.meta_info
        reason = meta.finish_reason
        if reason is None:
            return None
        pairs = zip(ids, meta.context_ids, strict=False)
        kept = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        prompt = meta.input_token_logprobs if self.index == 0 else None
        return Finished(
            0,
            node,
            self.index,
            reason.type,
            Usage(meta.prompt_tokens, meta.cached_tokens, meta.completion_tokens),
            reason.matched,
            kept,
            pack(meta.context_ids[kept:]),
            meta.time_to_first_token,
            meta.e2e_latency,
            healed=meta.healed,
            prompt=None if prompt is None else _scored(prompt),
            token_texts=_texts(prompt or []),
        )


def _scored(entries: Sequence[Entry]) -> ScoredTokens:
    return ScoredTokens(pack(entry.token for entry in entries), tuple(entry.logprob for entry in entries))


def _texts(*several: Sequence[Entry]) -> dict[int, str]:
    """The texts that entries have, by token."""
    return {entry.token: entry.text for entries in several for entry in entries if entry.text is not None}


class ScoredText(msgspec.Struct):
    """Tokens and how likely they are."""

    ids: list[int]
    logprobs: Logprobs
    unconditional: ScoredText | None = None

    def tokens(self) -> ScoredTokens:
        return ScoredTokens(pack(self.ids), self.logprobs)


class CachedTokens(msgspec.Struct):
    cached_tokens: int


class ScoreUsage(msgspec.Struct):
    prompt_tokens: int
    prompt_tokens_details: CachedTokens

    def usage(self) -> Usage:
        return Usage(self.prompt_tokens, self.prompt_tokens_details.cached_tokens, completion_tokens=0)


class PromptScored(ScoredText, kw_only=True):
    """A reply of `/score` without choices."""

    start: int
    usage: ScoreUsage
    tokenizer: str

    def scores(self, node: int) -> Scores:
        return Scores(0, node, (self.tokens(),), (), self.start, self.usage.usage())


class OptionsScored(msgspec.Struct):
    """A reply of `/score` with choices."""

    options: list[ScoredText]
    prefix_tokens: int
    usage: ScoreUsage
    tokenizer: str

    def scores(self, node: int) -> Scores:
        given = tuple(option.tokens() for option in self.options)
        alone = tuple(option.unconditional.tokens() for option in self.options if option.unconditional is not None)
        return Scores(0, node, given, alone, self.prefix_tokens, self.usage.usage())


class Turn(msgspec.Struct):
    """What the chat template writes around a turn."""

    begin: str
    end: str


class TurnsTold(msgspec.Struct):
    """A reply of `/turns`."""

    turns: list[Turn]
    error: ErrorBody | None = None


def decoded(data: bytes, kind: type[T]) -> T:
    """A reply as `kind`; raises `InternalError` for one that a radixrt server does not give."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.MsgspecError as error:
        raise InternalError(f"the server's reply is none of radixrt's: {error}") from error
