"""What is measured, each by `python -m benchmarks.NAME`."""

import os

# As in the worker (docs/decisions/0004): torch's idle threads would spin on the core that the native kernels are about
# to use, and what was measured next would be one core's rate.
os.environ.setdefault("GOMP_SPINCOUNT", "8000")
