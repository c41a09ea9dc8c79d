"""What holds for every test."""

from __future__ import annotations

import os
import signal

from hypothesis import settings

pytest_plugins = ["tests.support.fixtures", "tests.support.samplers"]

# Tests make or ship what they load: asking a model hub could only wait for a network that may not be there.
os.environ["HF_HUB_OFFLINE"] = "1"

# As the worker does, before torch is loaded: OpenMP threads that wait for a busy core sleep instead of spinning.
os.environ.setdefault("GOMP_SPINCOUNT", "8000")

# `make test` has a process a core: a second thread of torch in each would wait for those of the others, and a tiny
# model's step takes several times as long. Workers set their own number, as when in use.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell's background job starts with interrupts ignored, and so would all that it starts: tests of them would wait
# for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples in every run, and no verdict on the speed of the machine.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")
