"""Log-probabilities in OpenAI's two forms.

An entry is shown once text past the token's start has been shown, so that streams and whole replies agree and the
tokens of an end of turn or of a stop string, whose text is not shown, have none.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from radixrt.protocol.events import Finished, Piece, TokenLogprob
from radixrt.text.tokenizer import Tokenizer

_UTF8 = codecs.getincrementaldecoder("utf-8")
_LEAST = -9999.0
"""JSON has no minus infinity."""


@dataclass(frozen=True)
class Entry:
    """A token that was shown, and the character of the text at which it starts."""

    logprob: TokenLogprob
    offset: int


@dataclass
class ChoiceLogprobs:
    """One choice's entries, as they may be shown."""

    tokenizer: Tokenizer
    _entries: list[Entry] = field(default_factory=list)
    _starts: list[int] = field(default_factory=list)
    _bytes: int = 0
    _characters: int = 0
    _shown_bytes: int = 0
    _released: int = 0
    _decoder: codecs.IncrementalDecoder = field(default_factory=lambda: _UTF8("replace"))

    def add(self, piece: Piece) -> list[Entry]:
        """Take in a piece; the entries that may be shown now."""
        for logprob in piece.logprobs:
            self._entries.append(Entry(logprob, self._take(self.tokenizer.token_bytes(logprob.token))))
        self._shown_bytes += len(piece.text.encode())
        count = self._released
        # The newest waits for what follows: it may be the end of the turn.
        while count < len(self._entries) - 1 and self._starts[count] < self._shown_bytes:
            count += 1
        return self._release(count)

    def finish(self, end: Finished) -> list[Entry]:
        """The choice is complete: the rest of its entries."""
        shown = len(self._entries) if end.reason == "length" else end.kept + bool(end.tail)
        return self._release(max(shown, self._released))

    def _take(self, data: bytes) -> int:
        """Take in a token's bytes; the character at which they start."""
        self._starts.append(self._bytes)
        self._bytes += len(data)
        offset = self._characters
        inside, _ = self._decoder.getstate()
        text = self._decoder.decode(data)
        # Bytes that this token does not complete to a character were one of their own: U+FFFD.
        offset += bool(inside) and text.startswith("\ufffd")
        self._characters += len(text)
        return offset

    def _release(self, count: int) -> list[Entry]:
        entries = self._entries[self._released : count]
        self._released = count
        return entries


def entries_of(pieces: Sequence[Piece], end: Finished, tokenizer: Tokenizer) -> list[Entry]:
    """The entries of a choice that is complete."""
    logprobs = ChoiceLogprobs(tokenizer)
    return [entry for piece in pieces for entry in logprobs.add(piece)] + logprobs.finish(end)


def chat_form(entries: Sequence[Entry], tokenizer: Tokenizer) -> dict[str, Any]:
    """As `/v1/chat/completions` has it."""

    def shown(token: int, logprob: float) -> dict[str, Any]:
        text = tokenizer.token_text(token)
        # A special token has none: they are those of its name then.
        data = tokenizer.token_bytes(token) or text.encode()
        return {"token": text, "logprob": max(logprob, _LEAST), "bytes": list(data)}

    return {
        "content": [
            shown(entry.logprob.token, entry.logprob.logprob)
            | {"top_logprobs": [shown(token, logprob) for token, logprob in entry.logprob.top]}
            for entry in entries
        ],
        "refusal": None,
    }


def completion_form(entries: Sequence[Entry], tokenizer: Tokenizer) -> dict[str, Any]:
    """As `/v1/completions` has it."""
    text = tokenizer.token_text
    return {
        "tokens": [text(entry.logprob.token) for entry in entries],
        "token_logprobs": [max(entry.logprob.logprob, _LEAST) for entry in entries],
        "top_logprobs": [
            {text(token): max(logprob, _LEAST) for token, logprob in entry.logprob.top} for entry in entries
        ],
        "text_offset": [entry.offset for entry in entries],
    }
