"""What a script replies, and what it is asked."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from radixrt.client.conversation import Conversation
from radixrt.errors import RadixError
from radixrt.protocol.events import FinishReason
from radixrt.protocol.origin import Origin
from radixrt.protocol.sampling import SamplingParams


@dataclass(frozen=True)
class Reply:
    """One text of a scripted model, with what else a test may want of it. A token is a character."""

    text: str | Sequence[str]
    """As a list: the pieces in which it comes."""
    delay: float = 0.0
    """Seconds before each piece."""
    until: threading.Event | None = None
    """Nothing comes before this is set."""
    error: RadixError | None = None
    """It ends in this failure, after the text."""
    reason: FinishReason = "stop"
    """With "length" the text is one that was cut: it need not satisfy its constraint."""
    behind: str | None = None
    """What the prompt must end with."""
    hidden_tokens: int = 0
    """Tokens generated past the text, as an end of turn is: they are counted, and are not in the context."""

    @property
    def pieces(self) -> Sequence[str]:
        """The text's pieces."""
        return (self.text,) if isinstance(self.text, str) else self.text


@dataclass(frozen=True, slots=True)
class Request:
    """One `gen` or `select` that a scripted model was asked for."""

    run: int
    """Which of the model's runs, counted from 0..."""
    node: int
    """...and which node of that run."""
    origin: Origin | None = field(repr=False)
    """Where it was recorded; None for what no program recorded."""
    prompt: str
    """All text before it."""
    conversation: Conversation = field(repr=False)
    sampling: SamplingParams | None
    """Of a `gen`, its options; None for a `select`."""
    choices: tuple[str, ...] = ()
    """Of a `select`, its options."""

    @property
    def name(self) -> str | None:
        """The variable that it is for."""
        return self.origin.name if self.origin else None

    @property
    def program(self) -> str | None:
        """The program that asks."""
        return self.origin.program if self.origin else None

    @property
    def branch(self) -> tuple[int, ...]:
        """Which branch of each fork it is in, from the outermost; () in none."""
        return self.origin.branch if self.origin else ()

    @property
    def messages(self) -> list[dict[str, str]]:
        """The chat turns of the prompt, and the open one if it has text."""
        return self.conversation.messages()


Text: TypeAlias = str | Reply | RadixError
"""One choice of a `gen`; an error is what it fails with."""
Answer: TypeAlias = Text | tuple[Text, ...] | Mapping[str, float | Sequence[float]]
"""A tuple: the `n` choices of a `gen`. For a `select`: the option, or each option's log-probabilities,
one for each character or one number for all."""
AnswerTo: TypeAlias = Answer | Callable[[Request], Answer]
Replies: TypeAlias = Mapping[str | int | None, "AnswerTo | list[AnswerTo] | Replies"] | list[AnswerTo] | AnswerTo
"""By variable (None: those without a name); a list answers one after another within a run, anything else each time.
Under a number stands the same for that branch of a fork, which comes before what stands outside."""
