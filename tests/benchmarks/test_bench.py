"""`make bench` runs what can be run."""

from __future__ import annotations

import re
import subprocess
from importlib.util import find_spec

from tests.import_rules import ROOT


def test_make_bench_runs_every_benchmark_and_nothing_else() -> None:
    done = subprocess.run(["make", "-n", "bench"], cwd=ROOT, capture_output=True, text=True, check=True)
    (names,) = re.findall(r"for name in ([\w ]+);", done.stdout)
    modules = {path.stem for path in (ROOT / "benchmarks").glob("*.py") if "__main__" in path.read_text()}
    assert set(names.split()) == modules - {"gpu_check"} | {"programs"}
    assert find_spec("benchmarks.programs.__main__")
