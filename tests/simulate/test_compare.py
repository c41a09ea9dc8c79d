"""Several setups in parallel processes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from radixrt.simulate.compare import compare
from radixrt.simulate.costs import CostModel
from radixrt.simulate.setups import Machine, Setup
from radixrt.simulate.simulation import Simulation
from radixrt.simulate.source import Generated, TraceFile
from radixrt.simulate.trace import InvalidTrace

SETUPS = [Setup("none"), Setup("blocks"), Setup(eviction="program")]
MACHINE = Machine(cache_tokens=10_000)


def test_processes_report_what_one_process_reports_in_the_order_of_the_setups() -> None:
    source = Generated("tenants", 80, seed=1, rate=10.0)
    told: dict[int, int] = {}
    reports = compare(source, SETUPS, MACHINE, CostModel(), 2, told.__setitem__)
    alone = [Simulation(source.load(), setup, MACHINE, CostModel()).run() for setup in SETUPS]
    assert [replace(r, wall_seconds=0.0) for r in reports] == [replace(r, wall_seconds=0.0) for r in alone]
    assert len({report.computed_tokens for report in reports}) == len(SETUPS)
    assert told == {0: 80, 1: 80, 2: 80}


def test_an_error_in_a_process_is_raised_as_itself(tmp_path: Path) -> None:
    with pytest.raises(InvalidTrace, match="No such file") as caught:
        compare(TraceFile(tmp_path / "none.jsonl"), SETUPS, MACHINE, CostModel(), 2)
    assert caught.value.field == "trace"
