"""One call of a chat API, and what it tells: what all adapters share."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

from radixrt.client.conversation import Conversation
from radixrt.protocol.events import FinishReason, TokenLogprob, Usage
from radixrt.protocol.sampling import SamplingParams


@dataclass(frozen=True, slots=True)
class Call:
    """What an API is asked for: how the conversation goes on."""

    conversation: Conversation
    """With an open turn of the assistant, whose text, if there is some, the API is to continue."""
    sampling: SamplingParams
    """`max_tokens` and `stop` are those of the call."""


class Delta(NamedTuple):
    """Text that was added to a choice, and the log-probabilities of its tokens if they were asked for.

    APIs tell tokens by their texts: a token has a number below 0 here, and `token_texts` says which text it is.
    """

    choice: int
    text: str
    logprobs: tuple[TokenLogprob, ...] = ()
    token_texts: Mapping[int, str] = {}


class End(NamedTuple):
    """The end of a choice. `matched`: the stop string or token id that ended it, where the API says so."""

    choice: int
    reason: FinishReason
    matched: str | int | None = None


ApiEvent: TypeAlias = Delta | End | Usage
"""`Usage` counts all choices, and of several the last one counts; some servers tell none."""


class ChatApi(Protocol):
    """An API. Its methods are called on the event loop's thread."""

    @property
    def continues_turns(self) -> bool:
        """Whether a call may continue a turn that has text."""
        ...

    @property
    def takes_turns(self) -> bool:
        """Whether it takes chat turns; else it takes text."""
        ...

    def stream(self, call: Call) -> AsyncGenerator[ApiEvent, None]:
        """Make the call.

        Raises `InvalidRequest` and its kinds for what the API refuses, `NotAuthorized`, `ContentRefused`, and
        `ApiUnavailable` once it is no use to try again.
        """
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...
