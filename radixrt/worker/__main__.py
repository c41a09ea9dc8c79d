"""`python -m radixrt.worker`: the worker process. It is started by `radixrt.client`, never by hand."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from radixrt.config import WorkerConfig
from radixrt.worker.process import main

if TYPE_CHECKING:
    from radixrt.worker.programs import Programs

_BARRIER_SPINS = "8000"
"""How long OpenMP threads spin at a barrier before they sleep. By default they spin for milliseconds, and whenever
another process takes a core, every operation waits for it that long: a step was seen to take 50 times as long."""


def build(config: WorkerConfig, report: Callable[[str], None]) -> Programs:
    """Load the model with `config.threads` compute threads, one a physical core unless it says otherwise."""
    os.environ.setdefault("GOMP_SPINCOUNT", _BARRIER_SPINS)
    # Here and not above: the socket is bound, and the life line held, before torch has loaded.
    import torch

    from radixrt.kernels.cores import usable_cores
    from radixrt.worker.build import build_programs

    torch.set_num_threads(config.threads or usable_cores())
    return build_programs(config, report)


main(build)
