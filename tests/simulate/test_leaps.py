"""Steps advanced at once leave exactly what as many single steps leave."""

from __future__ import annotations

from dataclasses import replace

import pytest

from radixrt.protocol.plan import StepPlan
from radixrt.simulate.costs import CostModel
from radixrt.simulate.generators import GENERATORS, generate
from radixrt.simulate.report import Report
from radixrt.simulate.setups import Machine, Setup
from radixrt.simulate.simulation import Simulation
from radixrt.simulate.trace import Trace

TIGHT = Machine(cache_tokens=6_000, max_running=12, step_tokens=512)


def replay(
    trace: Trace, setup: Setup, machine: Machine, *, leaping: bool
) -> tuple[Report, list[float], list[float], int]:
    """The report without its wall time, all times, and how often the scheduler was asked for a plan."""
    simulation = Simulation(trace, setup, machine, CostModel(), leaping=leaping)
    scheduler, plans = simulation.scheduler, 0
    original = scheduler.plan

    def counted() -> StepPlan | None:
        nonlocal plans
        plans += 1
        return original()

    scheduler.plan = counted  # type: ignore[method-assign]
    report = simulation.run()
    scheduler.check_invariants()
    assert not scheduler.busy
    return replace(report, wall_seconds=0.0), simulation.first_token_times, simulation.ends, plans


@pytest.mark.parametrize("kind", GENERATORS)
@pytest.mark.parametrize(
    "setup",
    [Setup(), Setup("radix-1", eviction="lfu"), Setup("blocks", "dfs"), Setup(schedule="program", eviction="program")],
    ids=lambda setup: setup.name,
)
def test_a_leap_is_equal_to_its_steps(kind: str, setup: Setup) -> None:
    trace = generate(kind, 50, seed=3, rate=12.0)
    *stepped, plans = replay(trace, setup, TIGHT, leaping=False)
    *leapt, fewer_plans = replay(trace, setup, TIGHT, leaping=True)
    assert leapt == stepped
    assert stepped[0].evicted_tokens > 0
    assert fewer_plans < plans


def test_a_leap_is_equal_to_its_steps_where_requests_are_preempted() -> None:
    trace = generate("few-shot", 40, seed=1, rate=200.0)
    machine = Machine(cache_tokens=4_000, max_running=12, step_tokens=512)
    *stepped, _ = replay(trace, Setup("none"), machine, leaping=False)
    *leapt, _ = replay(trace, Setup("none"), machine, leaping=True)
    assert leapt == stepped
    assert stepped[0].preemptions > 0
