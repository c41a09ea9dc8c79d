"""Models of random weights, made on the device, and steps for them: nothing is downloaded or read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from radixrt.kernels.interface import BatchLayout, KernelBackend, RawWeight
from radixrt.model.config import ModelConfig
from radixrt.model.hf_config import parse_config
from radixrt.model.llama import Model
from radixrt.model.loader import build_model
from radixrt.model.presets import PRESETS
from radixrt.model.tensors import expected_shapes
from radixrt.model.weights.raw import raw_weight
from radixrt.protocol.plan import StepPlan
from radixrt.worker.executor import batch_layout

PAGE_SIZE = 16
LARGE, SMALL = "llama-3.1-8b", "smollm2-135m"


def model_fields(name: str, *, tiny: bool) -> dict[str, Any]:
    """config.json of a preset; in miniature if `tiny`, with what sets it apart (grouped heads, a tied head) kept."""
    fields = dict(PRESETS[name])
    if tiny:
        fields |= {
            "num_hidden_layers": 2,
            "hidden_size": 64,
            "intermediate_size": 96,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "vocab_size": 320,
            "max_position_embeddings": 512,
        }
    return fields


class RandomWeights:
    """A `WeightSource` whose tensors are functions of a seed and their names' order.

    They are scaled so that a model's greedy text wanders with clear margins, as those of `tests/support/tiny_models`.
    """

    def __init__(self, config: ModelConfig, dtype: torch.dtype, device: torch.device, seed: int = 0) -> None:
        random = torch.Generator(device).manual_seed(seed)
        self.tensors: dict[str, Tensor] = {}
        """In `dtype` on the device, by their Hugging Face names."""
        for name, shape in sorted(expected_shapes(config).items()):
            noise = torch.randn(shape, generator=random, device=device, dtype=dtype)
            if name.endswith("norm.weight"):
                self.tensors[name] = noise.mul_(0.1).add_(1)
            else:
                self.tensors[name] = noise.mul_(0.3 if "embed_tokens" in name else 2.0 * shape[-1] ** -0.5)

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        return {name: tuple(tensor.shape) for name, tensor in self.tensors.items()}

    def matrix(self, name: str) -> RawWeight:
        tensor = self.tensors[name]
        return raw_weight(str(tensor.dtype).removeprefix("torch."), tensor, (tensor.shape[0], tensor.shape[1]))

    def vector(self, name: str) -> Tensor:
        return self.tensors[name].float()


def random_model(fields: Mapping[str, Any], kernels: KernelBackend, context: int) -> Model:
    """A model of these fields, for sequences of up to `context` tokens."""
    config = parse_config(fields)
    weights = RandomWeights(config, kernels.dtype, kernels.device)
    return build_model(config, weights, kernels, min(context, config.max_positions))


def transformers_model(fields: Mapping[str, Any], weights: RandomWeights, dtype: torch.dtype) -> Any:
    """The same model as transformers has it, in `dtype`, with the same weights."""
    import transformers

    given = {name: value for name, value in fields.items() if name != "architectures"}
    with torch.device("meta"):
        # Made without weights, which would have to be thrown away.
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**given))
    state = {name: tensor.to(dtype) for name, tensor in weights.tensors.items()}
    device = next(iter(state.values())).device
    missing, unknown = model.load_state_dict(state, strict=False, assign=True)
    assert not unknown
    assert set(missing) <= {"lm_head.weight"}
    model.tie_weights()
    # Its frequencies are no weights.
    rotary = type(model.model.rotary_emb)(config=model.config)
    model.model.rotary_emb = rotary.to(device)
    return model.eval()


def one_sequence(count: int, start: int = 0) -> BatchLayout:
    """The tokens `start` to `start + count` of a sequence that lies in the first pages."""
    return layout_of([count], [start + count], [np.arange(-(-(start + count) // PAGE_SIZE))])


def layout_of(sizes: Sequence[int], contexts: Sequence[int], tables: Sequence[Any]) -> BatchLayout:
    """Rows of `sizes` new tokens at the ends of sequences of `contexts` tokens, which lie in the pages of `tables`."""
    starts = np.array([0, *np.cumsum(sizes)], dtype=np.int32)
    plan = StepPlan(
        step=0,
        requests=tuple(range(len(sizes))),
        token_ids=np.zeros(starts[-1], dtype=np.int32),
        query_starts=starts,
        context_lengths=np.array(contexts, dtype=np.int32),
        page_starts=np.array([0, *np.cumsum([len(table) for table in tables])], dtype=np.int32),
        pages=np.concatenate([np.asarray(table, dtype=np.int32) for table in tables]),
    )
    return batch_layout(plan, PAGE_SIZE)


def matrix_bytes(model: Model) -> int:
    """Bytes of the weights that a step reads whole: all but an embedding that is not the head too."""
    config, size = model.config, model.kernels.dtype.itemsize
    shapes = expected_shapes(config)
    count = sum(int(np.prod(shape)) for shape in shapes.values())
    return size * (count if config.tied_embeddings else count - config.vocabulary_size * config.hidden)


def matrix_elements(model: Model) -> int:
    """Elements of the layers' matrices: each token's products take twice as many operations."""
    shapes = expected_shapes(model.config)
    return sum(int(np.prod(shape)) for name, shape in shapes.items() if ".layers." in name and len(shape) == 2)
