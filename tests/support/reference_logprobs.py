"""Log-probabilities of a sequence's own tokens by a plain forward pass of transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from radixrt.protocol.ids import IdArray


def reference_logprobs(model: PreTrainedModel, ids: IdArray) -> list[float]:
    """One a token; NaN for the first, which nothing stands before."""
    import torch

    tokens = torch.tensor(ids.tolist())
    with torch.inference_mode():
        logits = model(tokens[None]).logits[0].double()
    logprobs = logits.log_softmax(dim=-1)[:-1].gather(1, tokens[1:, None])[:, 0]
    return [float("nan"), *logprobs.tolist()]
