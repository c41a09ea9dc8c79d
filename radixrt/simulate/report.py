"""What a replay came to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Report:
    """Tokens are those of the model; times are simulated seconds unless said otherwise."""

    requests: int
    prompt_tokens: int
    cached_tokens: int
    """Prompt tokens found in the cache when their requests were first admitted."""
    computed_tokens: int
    """Rows computed, the generated tokens' and those computed anew after a preemption included."""
    evicted_tokens: int
    """Pages evicted times the page size."""
    preemptions: int
    steps: int
    seconds: float
    """From the trace's beginning to the end of its last request."""
    ttft_p50: float
    """Time to first token: from a request's arrival to the end of the step that gave its first token."""
    ttft_p90: float
    ttft_p99: float
    wall_seconds: float
    """What the replay itself took."""

    @property
    def hit_rate(self) -> float:
        """Part of the prompt tokens that came from the cache."""
        return self.cached_tokens / self.prompt_tokens
