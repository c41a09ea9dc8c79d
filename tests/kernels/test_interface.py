"""What the contract's own data refuse."""

from __future__ import annotations

import math

import pytest

from radixrt.errors import UnsupportedModel
from radixrt.kernels.interface import AttentionShape


@pytest.mark.parametrize("scale", [0.0, -0.125, math.inf, math.nan])
def test_attention_scales_by_a_positive_number_only(scale: float) -> None:
    with pytest.raises(UnsupportedModel, match="scale"):
        AttentionShape(4, 2, 64, scale)
