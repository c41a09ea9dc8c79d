"""The interpreter forgives what a compiler does not: every kernel is compiled, too, without a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import defaultdict
from importlib.util import find_spec
from pathlib import Path

import pytest

from radixrt.kernels.triton.availability import INTERPRET

ROOT = Path(__file__).parents[3]
SHARED_MEMORY = {"cuda": 227 * 1024, "hip": 64 * 1024}
"""Bytes that a program may have on an H100 or H200, and on an MI300."""
KERNELS = {
    "attention_kernels": ("attend_items", "merge_parts"),
    "fused_kernels": ("rms_norm_rows", "silu_multiply_rows", "rotary_write"),
    "sampling_kernels": (
        "count_tokens",
        "penalise",
        "add_biases",
        "forbid",
        "apply_masks",
        "find_likeliest",
        "weigh",
        "draw",
        "log_probabilities",
        "score_targets",
    ),
}
WITH_FP8 = ("attend_items", "merge_parts", "rotary_write", "quantise")


@pytest.mark.parametrize(
    ("target", "dtype"),
    [
        pytest.param("cuda 90 32", "bfloat16", marks=pytest.mark.long),
        pytest.param("cuda 90 32", "float32", marks=pytest.mark.long),
        pytest.param("cuda 90 32", "float16", marks=pytest.mark.long),
        pytest.param("cuda 90 32", "bfloat16 fp8", marks=pytest.mark.long),
        pytest.param("cuda 75 32", "float16", marks=pytest.mark.long),
        pytest.param("hip gfx942 64", "bfloat16", marks=pytest.mark.long),
        pytest.param("hip gfx942 64", "float32", marks=pytest.mark.long),
    ],
)
def test_every_kernel_compiles_and_fits_a_processor(target: str, dtype: str, tmp_path: Path) -> None:
    if find_spec("triton") is None:
        pytest.skip("Triton is not installed")
    environment = {name: value for name, value in os.environ.items() if name != INTERPRET}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.kernels.triton.compile_kernels", *target.split(), *dtype.split()],
        cwd=ROOT,
        env=environment | {"TRITON_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    shared = defaultdict(list)
    for line in done.stdout.splitlines():
        name, size = line.split()
        shared[name].append(int(size))
    assert set(shared) == set(WITH_FP8 if "fp8" in dtype else (name for names in KERNELS.values() for name in names))
    assert max(size for sizes in shared.values() for size in sizes) <= SHARED_MEMORY[target.split()[0]]
