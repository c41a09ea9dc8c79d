"""What becomes of one `select`: the scores of its options, then the decision, or its failure."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from radixrt.errors import InvalidRequest
from radixrt.lang.choices import Decides, TokenEntry, mean, method_name, token_length_normalized
from radixrt.lang.results import Choice, Generation
from radixrt.protocol.events import ScoredTokens, Scores, TextEvent


@dataclass(slots=True, eq=False, kw_only=True)
class Selection(Generation):
    """A `select` that was recorded: a generation whose text is one of `options`, as `method` decides."""

    options: tuple[str, ...]
    method: Decides = token_length_normalized
    chosen: int | None = None
    """Which of the options, once that is decided."""
    _meta: dict[str, Any] = field(default_factory=dict)

    def receive(self, event: TextEvent) -> None:
        """Take in an event; with the scores it is decided. A method that raises fails this select."""
        if not isinstance(event, Scores):
            Generation.receive(self, event)  # not super(): a dataclass with slots is another class than it was written
            return
        if self.complete:
            return
        try:
            self._decide(event)
        except Exception as error:
            # Whatever a user's method raises belongs to those who read this select.
            self.fail(self.failed_with(error))
            return
        self._end()

    def meta_info(self, choice: Choice) -> dict[str, Any]:
        """What is known of the decision; nothing before it is made.

        `choices` (the options, each once), `choices_method` (its name), `normalized_prompt_logprobs` (of each option
        the mean of its tokens' log-probabilities), `input_token_logprobs` (of each option its tokens, as tuples
        `(logprob, token id, None)`, after the `prefix_tokens` tokens that all options share), `output_token_logprobs`
        (empty lists), `unconditional_token_logprobs` (if the method needs them), the sums `prompt_tokens` and
        `cached_tokens` over all that was scored, and what the method itself tells.
        """
        return dict(self._meta)

    def _decide(self, scores: Scores) -> None:
        unconditional = scores.unconditional or None
        decision = self.method(
            choices=list(self.options),
            normalized_prompt_logprobs=_means(scores.scored),
            input_token_logprobs=_entries(scores.scored),
            output_token_logprobs=[[] for _ in self.options],
            unconditional_token_logprobs=None if unconditional is None else _entries(unconditional),
        )
        name, chosen = method_name(self.method), getattr(decision, "decision", None)
        if chosen not in self.options:
            options = ", ".join(map(repr, self.options))
            raise InvalidRequest(
                f"the choices method {name} decided {chosen!r}, which is none of: {options}", field="choices_method"
            )
        self._meta = {
            "choices": list(self.options),
            "choices_method": name,
            "normalized_prompt_logprobs": _means(scores.scored),
            "input_token_logprobs": _entries(scores.scored),
            "output_token_logprobs": [[] for _ in self.options],
            "prefix_tokens": scores.prefix_tokens,
            "prompt_tokens": scores.usage.prompt_tokens,
            "cached_tokens": scores.usage.cached_tokens,
            "completion_tokens": 0,
        }
        if unconditional is not None:
            self._meta["unconditional_token_logprobs"] = _entries(unconditional)
        self._meta |= getattr(decision, "meta_info", None) or {}
        self.chosen = self.options.index(chosen)
        self.choices[0].pieces.append(chosen)


def _entries(scored: Sequence[ScoredTokens]) -> list[list[TokenEntry]]:
    # Ids are little-endian int32 (`protocol.ids`, which would bring numpy into the language).
    return [
        [
            (value, token, None)
            for value, (token,) in zip(entry.logprobs, struct.iter_unpack("<i", entry.ids), strict=True)
        ]
        for entry in scored
    ]


def _means(scored: Sequence[ScoredTokens]) -> list[float]:
    return [mean([value or 0.0 for value in entry.logprobs]) for entry in scored]
