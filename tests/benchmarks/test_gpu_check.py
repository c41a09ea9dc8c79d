"""The device check runs whole on a machine without a GPU, and loses no more than the part that is at fault."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.gpu.correctness import KINDS
from benchmarks.gpu.findings import Findings
from benchmarks.gpu.isolation import run_together
from benchmarks.gpu.models import layout_of
from radixrt.kernels.flashinfer.rows import exact_tables, split_rows
from radixrt.kernels.graphs import bucket_for
from radixrt.kernels.triton.availability import INTERPRET, why_not
from tests.import_rules import ROOT

MEASURED = ("decode", "gaps", "prefill", "cascade", "logits", "cached")

# From 3.12 on Python warns of forks where there are threads; the check itself forks before there are any.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def test_every_part_runs_on_tiny_shapes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "results.json"
    command = [sys.executable, "-m", "benchmarks.gpu_check", "--device", "cpu", "--tiny", "--out", str(out)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
    results = json.loads(out.read_text())
    parts = {part["part"]: part for part in results["parts"]}
    expected = {"backends", "machine", *(f"{name} reference" for name in MEASURED)}
    monkeypatch.setenv(INTERPRET, "1")
    if why_not("cpu") is None:
        expected |= {"conformance triton float32", "greedy triton"}
    assert set(parts) == expected
    for part in parts.values():
        assert part["fault"] is None
        assert part["findings"], f"{part['part']} found nothing"
    assert "not here: not on a CPU" in [finding["value"] for finding in parts["backends"]["findings"]]


@pytest.mark.parametrize("kind", KINDS)
def test_what_flashinfer_is_made_to_compile_has_rows_of_each_kind(kind: str) -> None:
    layout = layout_of(*zip(*KINDS[kind], strict=True))
    assert kind in [part.kind for part in split_rows(exact_tables(layout), layout.page_size, window=None)]
    # Branches alone would be left to Triton's graphs.
    assert kind == "decode" or bucket_for(layout) is None


def hangs(found: Findings) -> None:
    found.note("before it hung", 1.0)
    time.sleep(600)


def crashes(found: Findings) -> None:
    found.note("before it crashed", 1.0)
    os.kill(os.getpid(), signal.SIGSEGV)


def raises(found: Findings) -> None:
    raise ValueError("a reason")


def misses(found: Findings) -> None:
    found.at_least("speed", 1.0, "x", 2.0)


def works(found: Findings) -> None:
    found.at_least("speed", 3.0, "x", 2.0)


def test_a_part_that_crashes_fails_or_misses_its_target_takes_no_other_with_it(tmp_path: Path) -> None:
    parts = [(part.__name__, part) for part in (crashes, raises, misses, works)]
    outcomes = {outcome.part: outcome for outcome in run_together(parts, 60.0, tmp_path)}
    assert {name for name, outcome in outcomes.items() if outcome.passed} == {"works"}
    assert outcomes["crashes"].fault is not None
    assert "SIGSEGV" in outcomes["crashes"].fault
    assert [finding.what for finding in outcomes["crashes"].findings] == ["before it crashed"]
    assert "ValueError: a reason" in (outcomes["raises"].fault or "")
    assert outcomes["misses"].fault is None
    assert [finding.met for finding in outcomes["misses"].findings] == [False]


def test_a_part_that_hangs_is_ended_and_says_where_it_was(tmp_path: Path) -> None:
    (outcome,) = run_together([("hangs", hangs)], 3.0, tmp_path)
    assert outcome.fault is not None
    assert outcome.fault.startswith("no end after 3 s")
    assert "in hangs" in outcome.fault
    assert [finding.what for finding in outcome.findings] == ["before it hung"]
    assert not outcome.passed
