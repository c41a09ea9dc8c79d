"""The native thread pool, as Python meets it. What it does inside is tested in threads_test.cpp."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest
import torch

from radixrt.kernels.cpu import availability

pytestmark = pytest.mark.skipif(availability.why_not() is not None, reason="the native kernels were not built")

IN_A_CHILD_OF_FORK = """
import os, torch
from radixrt.kernels.cpu import _native

kernels = _native.Kernels(3, None)
gate_up, out = torch.ones(50, 64), torch.zeros(50, 32, dtype=torch.bfloat16)
kernels.silu_multiply(gate_up.data_ptr(), out.data_ptr(), 50, 32)
expected = out.clone()
child = os.fork()
if child == 0:
    out.zero_()
    kernels.silu_multiply(gate_up.data_ptr(), out.data_ptr(), 50, 32)
    kernels.silu_multiply(gate_up.data_ptr(), out.data_ptr(), 50, 32)
    same = torch.equal(out, expected)
    del kernels
    os._exit(0 if same else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), bool(expected.all()))
"""


def silu(kernels, rows: int) -> torch.Tensor:  # type: ignore[no-untyped-def]
    gate_up = torch.arange(rows * 64, dtype=torch.float32).view(rows, 64) / (rows * 64)
    out = torch.zeros(rows, 32, dtype=torch.bfloat16)
    kernels.silu_multiply(gate_up.data_ptr(), out.data_ptr(), rows, 32)
    return out


def test_idle_threads_use_no_processor_time() -> None:
    from radixrt.kernels.cpu import _native

    kernels = _native.Kernels(4, None)
    assert kernels.threads == 4
    silu(kernels, 100)
    time.sleep(0.05)
    before = time.process_time()
    time.sleep(0.5)
    assert time.process_time() - before < 0.05


def test_several_python_threads_may_call_at_once() -> None:
    from radixrt.kernels.cpu import _native

    kernels = _native.Kernels(3, None)
    expected = silu(_native.Kernels(1, None), 64)
    assert expected.count_nonzero() > 2000
    wrong: list[int] = []

    def call(number: int) -> None:
        wrong.extend(number for _ in range(50) if not torch.equal(silu(kernels, 64), expected))

    callers = [threading.Thread(target=call, args=(number,)) for number in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(60)
        assert not caller.is_alive()
    assert wrong == []


def test_a_child_of_fork_computes_on_its_own_thread() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", IN_A_CHILD_OF_FORK], capture_output=True, text=True, timeout=120
    )
    assert done.stdout.split() == ["0", "True"], done.stderr


@pytest.mark.parametrize("threads", [0, -1])
def test_a_pool_without_threads_is_refused(threads: int) -> None:
    from radixrt.kernels.cpu import _native

    with pytest.raises(ValueError, match="threads must be at least 1"):
        _native.Kernels(threads, None)


def test_an_unknown_level_is_refused_by_its_name() -> None:
    from radixrt.kernels.cpu import _native

    assert _native.levels()[-1] == "portable"
    with pytest.raises(ValueError, match="does not run the level sse"):
        _native.Kernels(1, "sse")
