"""The ways in which models stretch their rotary embeddings to longer contexts, as their files give them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class LinearScaling:
    """Position interpolation (Chen et al. 2023): all angles divided by `factor`."""

    factor: float


@dataclass(frozen=True, slots=True)
class Llama3Scaling:
    """Llama 3.1: slow frequencies divided by `factor`, fast ones kept, a linear blend between."""

    factor: float
    low_frequency_factor: float
    high_frequency_factor: float
    original_positions: int


@dataclass(frozen=True, slots=True)
class YarnScaling:
    """YaRN (Peng et al. 2023), "NTK by parts" with the attention temperature folded into cosines and sines."""

    factor: float
    original_positions: int
    attention_factor: float
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    """Round the blend's borders to whole dimensions."""


@dataclass(frozen=True, slots=True)
class FrequencyFactors:
    """A divisor for each frequency: how a GGUF file stores Llama 3.1's scaling, already worked out."""

    factors: tuple[float, ...]


RopeScaling: TypeAlias = LinearScaling | Llama3Scaling | YarnScaling | FrequencyFactors


def yarn_attention_factor(factor: float, mscale: float | None = None, mscale_all: float | None = None) -> float:
    """The YaRN paper's `0.1 ln(factor) + 1` (section 3.4), or DeepSeek's ratio of two such when both are given."""

    def temperature(weight: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0

    if mscale and mscale_all:
        return temperature(mscale) / temperature(mscale_all)
    return temperature(1.0)
