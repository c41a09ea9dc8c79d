"""That `make sanitize` would see a mistake: one is made here on purpose."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from radixrt.kernels.cpu import availability

FOLDER = os.environ.get("RADIXRT_NATIVE")
pytestmark = pytest.mark.skipif(FOLDER is None, reason="only under make sanitize")

ONE_ROW_TOO_MANY = """
import sys
import tests.support.native_module
import torch
from radixrt.kernels.cpu import _native

gate_up, out = torch.ones(9, 64), torch.zeros(8, 32, dtype=torch.bfloat16)
_native.Kernels(1, sys.argv[1]).silu_multiply(gate_up.data_ptr(), out.data_ptr(), 9, 32)
"""


@pytest.mark.parametrize("level", ["avx512", "avx2", "portable"])
def test_a_write_past_a_tensor_ends_the_process(level: str) -> None:
    if level not in availability.levels():
        pytest.skip(f"this processor does not run {level}")
    done = subprocess.run([sys.executable, "-c", ONE_ROW_TOO_MANY, level], capture_output=True, text=True)
    assert done.returncode != 0
    assert "AddressSanitizer: heap-buffer-overflow" in done.stderr
    assert "silu_multiply" in done.stderr
