"""What plain calls give back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from radixrt.protocol.events import FinishReason, Logprobs, TokenLogprob, Usage


class TokenIds(Protocol):
    """Token ids, one-dimensional: an int32 array of numpy's from a `Runtime`, of Python's `array` from a server."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[int]: ...

    def __getitem__(self, index: Any, /) -> Any: ...

    def tolist(self) -> Any: ...


@dataclass(frozen=True, eq=False)
class Choice:
    """One completion of a prompt."""

    text: str
    ids: TokenIds
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
class TokenScores:
    """Tokens and the natural log-probability of each behind all that stand before it."""

    ids: TokenIds
    logprobs: Logprobs
    """One for each of `ids`; None for a token that nothing stands before."""

    @property
    def total(self) -> float:
        """The log-probability of all tokens together; one that nothing stands before counts as certain."""
        return sum(value or 0.0 for value in self.logprobs)

    @property
    def mean(self) -> float:
        """`total` a token; 0 for none."""
        return self.total / max(len(self.logprobs), 1)


@dataclass(frozen=True, eq=False)
class Generation:
    """The `n` choices of one prompt. With n = 1, the usual case, read the only one's fields right here."""

    choices: tuple[Choice, ...]
    prompt: TokenScores | None = None
    """The prompt's own tokens from `logprob_start_len` on, if that was given."""

    @property
    def text(self) -> str:
        return self.choices[0].text

    @property
    def ids(self) -> TokenIds:
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


@dataclass(frozen=True, eq=False)
class PromptScores:
    """A prompt's own tokens from `start` on."""

    tokens: TokenScores
    start: int
    usage: Usage


@dataclass(frozen=True, eq=False)
class OptionScore:
    """One option."""

    text: str
    tokens: TokenScores
    """Its tokens after the longest common prefix of all options: at least one. Where the tokenizer joins the end of the
    prompt with an option, the first of them holds both."""
    unconditional: TokenScores | None
    """The same tokens without the prompt (behind the BOS, if the tokenizer writes one before every text)."""


@dataclass(frozen=True, eq=False)
class OptionScores:
    """All options behind one prompt."""

    options: tuple[OptionScore, ...]
    """In the order given."""
    prefix_tokens: int
    """The length of the longest common prefix of prompt and option, over all options."""
    usage: Usage
    """The sums over all that was scored."""

    @property
    def best(self) -> OptionScore:
        """The option with the highest mean log-probability, the first of equal ones."""
        return max(self.options, key=lambda option: option.tokens.mean)
