"""Log-probabilities in OpenAI's two forms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from radixrt.protocol.events import TokenLogprob


class LogprobReader:
    """Reads those of one reply. OpenAI names tokens by their texts alone, so they are numbered here: -1, -2, ..."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._texts: list[str] = []
        """That of token -1 - i at place i."""

    def chat(self, given: Mapping[str, Any] | None) -> tuple[TokenLogprob, ...]:
        """Of /chat/completions: an entry a token, with the likeliest ones."""
        entries = (given or {}).get("content") or ()
        return tuple(
            TokenLogprob(self._number(entry["token"]), entry["logprob"], self._top(_pairs(entry.get("top_logprobs"))))
            for entry in entries
        )

    def completion(self, given: Mapping[str, Any] | None) -> tuple[TokenLogprob, ...]:
        """Of /completions: lists side by side."""
        given = given or {}
        tokens = given.get("tokens") or ()
        tops = given.get("top_logprobs") or [None] * len(tokens)
        return tuple(
            TokenLogprob(self._number(token), value, self._top(list((top or {}).items())))
            for token, value, top in zip(tokens, given.get("token_logprobs") or (), tops, strict=True)
        )

    def texts(self, logprobs: Sequence[TokenLogprob]) -> dict[int, str]:
        """The texts of all tokens that `logprobs` tell of."""
        told = (token for entry in logprobs for token in (entry.token, *(token for token, _ in entry.top)))
        return {token: self._texts[-1 - token] for token in told}

    def _number(self, text: str) -> int:
        number = self._numbers.get(text)
        if number is None:
            self._texts.append(text)
            number = self._numbers[text] = -len(self._texts)
        return number

    def _top(self, pairs: Sequence[tuple[str, float]]) -> tuple[tuple[int, float], ...]:
        best_first = sorted(pairs, key=lambda pair: -pair[1])
        return tuple((self._number(text), value) for text, value in best_first)


def _pairs(entries: Sequence[Mapping[str, Any]] | None) -> list[tuple[str, float]]:
    return [(entry["token"], entry["logprob"]) for entry in entries or ()]
