"""What becomes of a node: pieces of its text, then exactly one `Finished`, `Scored` or `Failed` a choice."""

from __future__ import annotations

from typing import ClassVar, Literal, TypeAlias

import msgspec

FinishReason: TypeAlias = Literal["stop", "length"]


class TokenLogprob(msgspec.Struct, frozen=True, array_like=True):
    """One generated token's log-probability and the likeliest alternatives, `(token, logprob)`, best first."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


class Tokens(msgspec.Struct, frozen=True, tag="tokens", omit_defaults=True):
    """Tokens that a step added. `text` is what may be shown by now: a possible stop string is held back."""

    program: int
    node: int
    choice: int
    ids: bytes
    text: bytes
    """UTF-8, perhaps cut inside a character: `text.detokenizer` joins the pieces."""
    logprobs: tuple[TokenLogprob, ...] = ()


class Usage(msgspec.Struct, frozen=True):
    """Token counts of one choice."""

    prompt_tokens: int
    cached_tokens: int
    """Of the prompt, served from the prefix tree when the choice was first admitted."""
    completion_tokens: int
    """Tokens really generated: an end of turn and tokens past a stop string's start count."""


Logprobs: TypeAlias = tuple[float | None, ...]
"""Natural log-probabilities, one a token; None for a token with nothing before it."""


class ScoredTokens(msgspec.Struct, frozen=True):
    """Known tokens and their log-probabilities."""

    ids: bytes
    logprobs: Logprobs


class Finished(msgspec.Struct, frozen=True, tag="finished", omit_defaults=True):
    """The choice is complete; all its text has been sent before."""

    program: int
    node: int
    choice: int
    reason: FinishReason
    usage: Usage
    matched: int | str | None = None
    """With reason `stop`: the token id or the text that ended the generation; None if its constraint did."""
    kept: int = 0
    """How many generated ids are in the context that children continue..."""
    tail: bytes = b""
    """...followed by these packed ids, the tokenisation of what a stop string left of the token it cut."""
    time_to_first_token: float = 0.0
    """Seconds from when the choice could start (its parent being complete) to its first token."""
    time: float = 0.0
    """Seconds from then to its last token."""
    speculated: bool = False
    """Of a chat API: an earlier call had written the text already, so that it took none and its usage is empty."""
    prompt: ScoredTokens | None = None
    """Of choice 0, if they were asked for (`logprob_start_len`): the tokens of the context that it continued."""
    token_texts: dict[int, str] = {}
    """The frontend's: the texts of the tokens in `prompt`, if those were asked for."""


class Scored(msgspec.Struct, frozen=True, tag="scored"):
    """The end of a node that was to be scored."""

    program: int
    node: int
    logprobs: Logprobs
    """Of the node's own ids from `TreeNode.score` on."""
    usage: Usage

    choice: ClassVar[int] = 0


class Failed(msgspec.Struct, frozen=True, tag="failed", omit_defaults=True):
    """The choice ended in an error; `errors.error_from_wire` makes it an exception again."""

    program: int
    node: int
    choice: int
    kind: str
    message: str
    field: str | None = None


Event: TypeAlias = Tokens | Finished | Scored | Failed


class Piece(msgspec.Struct, frozen=True):
    """`Tokens` as the frontend hands it on: whole characters only."""

    program: int
    node: int
    choice: int
    text: str
    ids: bytes
    logprobs: tuple[TokenLogprob, ...] = ()
    token_texts: dict[int, str] = {}
    """Those of the tokens in `logprobs`, if they were asked for."""


class Scores(msgspec.Struct, frozen=True):
    """`Scored` as the frontend hands it on: the end of a node that was to be scored, or of a select.

    Of a select, one of the options has to be chosen then (`client.backend.Session.choose`).
    """

    program: int
    node: int
    scored: tuple[ScoredTokens, ...]
    """Of a scored node its tokens; of a select one entry an option: its tokens after what all options share."""
    unconditional: tuple[ScoredTokens, ...]
    """The same tokens without the prompt, if asked for."""
    prefix_tokens: int
    """Tokens of the context before the first one scored: of a select, the length of what all options share."""
    usage: Usage
    """Of all requests that it took, one an option."""

    choice: ClassVar[int] = 0


TextEvent: TypeAlias = Piece | Finished | Scores | Failed
