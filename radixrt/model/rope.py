"""Rotary position embeddings: how fast each pair of elements turns, and the table of cosines and sines.

Every formula is computed in float32 in the order that transformers uses, since a model was trained and is compared
with exactly those angles: at position 8,000 one unit in the last place of a frequency is an angle of 5e-4.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from radixrt.model.rope_scaling import FrequencyFactors, LinearScaling, Llama3Scaling, RopeScaling, YarnScaling


def inverse_frequencies(theta: float, head_dim: int, scaling: RopeScaling | None) -> Tensor:
    """Radians per position of each pair: float32 [head_dim / 2]."""
    powers = theta ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
    frequencies = 1.0 / powers
    match scaling:
        case None:
            return frequencies
        case LinearScaling(factor):
            return frequencies / factor
        case FrequencyFactors(factors):
            return frequencies / torch.tensor(factors, dtype=torch.float32)
        case Llama3Scaling():
            return _llama3(frequencies, scaling)
        case YarnScaling():
            return _yarn(powers, theta, head_dim, scaling)


def cos_sin_table(theta: float, head_dim: int, scaling: RopeScaling | None, positions: int) -> Tensor:
    """float32 [positions, head_dim]: cosines in the first half of a row, sines in the second."""
    angles = torch.outer(torch.arange(positions, dtype=torch.float32), inverse_frequencies(theta, head_dim, scaling))
    table = torch.cat((angles.cos(), angles.sin()), dim=-1)
    return table * scaling.attention_factor if isinstance(scaling, YarnScaling) else table


def _llama3(frequencies: Tensor, scaling: Llama3Scaling) -> Tensor:
    low, high = scaling.low_frequency_factor, scaling.high_frequency_factor
    wavelengths = 2 * math.pi / frequencies
    is_slow = wavelengths > scaling.original_positions / low
    is_fast = wavelengths < scaling.original_positions / high
    blend = (scaling.original_positions / wavelengths - low) / (high - low)
    blended = (1 - blend) * frequencies / scaling.factor + blend * frequencies
    return torch.where(is_fast, frequencies, torch.where(is_slow, frequencies / scaling.factor, blended))


def _yarn(powers: Tensor, theta: float, head_dim: int, scaling: YarnScaling) -> Tensor:
    def dimension_of(rotations: float) -> float:
        """The (fractional) pair that turns this often within the original context."""
        return head_dim * math.log(scaling.original_positions / (rotations * 2 * math.pi)) / (2 * math.log(theta))

    low, high = dimension_of(scaling.beta_fast), dimension_of(scaling.beta_slow)
    if scaling.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    if low == high:
        high += 0.001  # an empty blend is a step, not a division by zero
    ramp = ((torch.arange(head_dim // 2, dtype=torch.float32) - low) / (high - low)).clamp(0, 1)
    keep = 1 - ramp
    return 1.0 / (scaling.factor * powers) * (1 - keep) + 1.0 / powers * keep
