"""How long a step takes: a line through what it has to compute and to read."""

from __future__ import annotations

from dataclasses import dataclass

from radixrt.protocol.plan import StepPlan


@dataclass(frozen=True, slots=True)
class CostModel:
    """Seconds. The defaults are of the order of an 8B model in bfloat16 on one large GPU; they are no measurement."""

    step: float = 0.008
    """Of every step: the weights are read once."""
    prefill_token: float = 50e-6
    decode_row: float = 20e-6
    context_token: float = 65e-9
    """Of each token whose keys and values a row reads."""

    def seconds(self, prefill_tokens: int, decode_rows: int, context_tokens: int) -> float:
        """Of one step."""
        return (
            self.step
            + self.prefill_token * prefill_tokens
            + self.decode_row * decode_rows
            + self.context_token * context_tokens
        )

    def of_plan(self, plan: StepPlan) -> float:
        """Of a planned step: a row of one token that is sampled counts as a decode row, all else as prefill."""
        starts = plan.query_starts.tolist()  # Few rows a step: lists are quicker than arrays.
        single = sum([starts[spec.row + 1] - starts[spec.row] == 1 for spec in plan.samples])
        return self.seconds(len(plan.token_ids) - single, single, sum(plan.context_lengths.tolist()))
