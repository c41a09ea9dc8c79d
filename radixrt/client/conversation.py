"""A context as chat turns: what chat APIs are sent, and what a `Scripted` model tells of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Turn(NamedTuple):
    """A whole turn."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Conversation:
    """Turns, and what stands behind them."""

    turns: tuple[Turn, ...] = ()
    role: str | None = None
    """Whose turn is open; None: no one's..."""
    text: str = ""
    """...and its text so far; with no turn open, the text since the last one."""

    def with_text(self, text: str) -> Conversation:
        """The conversation with `text` appended."""
        return Conversation(self.turns, self.role, self.text + text)

    def begin(self, role: str) -> Conversation:
        """The conversation with a turn of that role open. Text between turns is left out: no chat API takes it."""
        return Conversation(self.turns, role)

    def end(self) -> Conversation:
        """The conversation with the open turn ended."""
        assert self.role is not None
        return Conversation((*self.turns, Turn(self.role, self.text)))

    def messages(self) -> list[dict[str, str]]:
        """The whole turns as chat messages, and the open one if it has text."""
        turns = self.turns
        if self.role is not None and self.text:
            turns = (*turns, Turn(self.role, self.text))
        return [{"role": turn.role, "content": turn.content} for turn in turns]
