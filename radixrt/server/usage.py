"""Token counts of a request as OpenAI writes them."""

from __future__ import annotations

from typing import Any

from radixrt.protocol.events import Finished


class UsageCount:
    """Adds up the usage of choices. A prompt counts once, whatever the number of its choices."""

    def __init__(self) -> None:
        self._prompt = self._cached = self._completion = 0

    def add(self, end: Finished) -> None:
        """Take in the usage of a choice that is complete."""
        usage = end.usage
        self._completion += usage.completion_tokens
        if end.choice == 0:
            self._prompt += usage.prompt_tokens
            self._cached += usage.cached_tokens

    def body(self) -> dict[str, Any]:
        return {
            "prompt_tokens": self._prompt,
            "completion_tokens": self._completion,
            "total_tokens": self._prompt + self._completion,
            "prompt_tokens_details": {"cached_tokens": self._cached},
        }
