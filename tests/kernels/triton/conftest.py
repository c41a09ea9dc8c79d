"""Without a GPU these tests run in Triton's interpreter; without Triton they are left out."""

from __future__ import annotations

import pytest
import torch

from radixrt.kernels.triton.availability import why_not
from tests.support.triton_interpreter import interpret_without_gpu

interpret_without_gpu()


@pytest.fixture
def device() -> torch.device:
    """A device that runs Triton's kernels."""
    kind = "cuda" if torch.cuda.is_available() else "cpu"
    reason = why_not(kind)
    if reason:
        pytest.skip(reason)
    return torch.device(kind)
