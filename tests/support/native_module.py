"""A pytest plugin (`-p tests.support.native_module`) that takes the native module from the folder RADIXRT_NATIVE.

`make sanitize` runs the tests on a module built with sanitizers, beside which the checkout's own stays as it is.
"""

from __future__ import annotations

import os
from pathlib import Path

import radixrt.kernels.cpu

folder = Path(os.environ["RADIXRT_NATIVE"]).resolve()
radixrt.kernels.cpu.__path__.insert(0, str(folder))

from radixrt.kernels.cpu import _native  # noqa: E402

assert Path(_native.__file__).parent == folder, f"{_native.__file__} is not the module in {folder}"
