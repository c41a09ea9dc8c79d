"""What a replay counts, against counts made by hand."""

from __future__ import annotations

import numpy as np
import pytest

from radixrt.protocol.ids import IdArray
from radixrt.simulate.costs import CostModel
from radixrt.simulate.generators import generate
from radixrt.simulate.hash_blocks import BLOCK
from radixrt.simulate.optimum import reusable_tokens
from radixrt.simulate.report import Report
from radixrt.simulate.setups import REUSES, Machine, Setup, comparison
from radixrt.simulate.simulation import Simulation
from radixrt.simulate.trace import InvalidTrace, Pieces, Trace, TraceRequest, made_up_output

ROOMY = Machine(cache_tokens=200_000)


def replay(trace: Trace, setup: Setup, machine: Machine = ROOMY) -> Report:
    return Simulation(trace, setup, machine, CostModel()).run()


def one_at_a_time(kind: str) -> list[TraceRequest]:
    """Requests so far apart that none waits for another; nothing else of their programs is left."""
    trace = generate(kind, 60, seed=5, rate=10.0)
    return [TraceRequest(1000.0 * i, r.prompt, r.output, tenant=r.tenant) for i, r in enumerate(trace)]


def seen_before(trace: Trace, unit: int) -> int:
    """Prompt tokens that stand in an earlier sequence, in whole units from its beginning; the naive way."""
    found, seen = 0, set[tuple[str | None, bytes]]()
    for request in trace:
        prompt = request.prompt.ids()
        for end in range(unit, len(prompt), unit):
            if (request.tenant, prompt[:end].tobytes()) not in seen:
                break
            found += unit
        fed = np.concatenate([prompt, request.output[:-1]])
        seen.update((request.tenant, fed[:end].tobytes()) for end in range(unit, len(fed) + 1, unit))
    return found


@pytest.mark.parametrize("kind", ["chat", "tenants", "tree-of-thought"])
def test_a_cache_that_holds_everything_reaches_the_optimum_at_every_page_size(kind: str) -> None:
    trace = one_at_a_time(kind)
    optimum = seen_before(trace, 1)
    assert optimum > 0
    assert reusable_tokens(trace) == optimum
    for reuse in ("radix-1", "radix-16", "radix-64"):
        assert replay(trace, Setup(reuse)).cached_tokens == optimum


@pytest.mark.parametrize("kind", ["chat", "tenants", "tree-of-thought"])
def test_hash_blocks_reuse_whole_blocks_and_nothing_else(kind: str) -> None:
    trace = one_at_a_time(kind)
    assert 0 < seen_before(trace, BLOCK) < seen_before(trace, 1)
    assert replay(trace, Setup("blocks")).cached_tokens == seen_before(trace, BLOCK)


def test_a_prompt_that_is_cached_to_its_end_computes_its_last_block_or_its_last_token() -> None:
    prompt = Pieces(np.arange(2 * BLOCK, dtype=np.int32))
    trace = [TraceRequest(1000.0 * i, prompt, made_up_output(i, 3)) for i in range(2)]
    assert replay(trace, Setup("blocks")).cached_tokens == BLOCK
    assert replay(trace, Setup("radix-16")).cached_tokens == 2 * BLOCK - 1


def test_without_reuse_every_token_is_computed() -> None:
    trace = generate("agents", 60, seed=2, rate=10.0)
    report = replay(trace, Setup("none"))
    assert report.cached_tokens == report.evicted_tokens == report.preemptions == 0
    assert report.computed_tokens == sum(request.tokens - 1 for request in trace)
    assert report.prompt_tokens == sum(len(request.prompt) for request in trace)


def test_the_time_to_the_first_token_is_that_of_the_cost_model() -> None:
    costs = CostModel(step=1.0, prefill_token=0.25, decode_row=0.5, context_token=0.125)
    ids: IdArray = np.arange(6, dtype=np.int32)
    simulation = Simulation([TraceRequest(7.0, Pieces(ids), ids[:3])], Setup("radix-1"), Machine(step_tokens=4), costs)
    report = simulation.run()
    first = (1.0 + 0.25 * 4 + 0.125 * 4) + (1.0 + 0.25 * 2 + 0.125 * 6)
    assert simulation.first_token_times == [first]
    assert report.seconds == 7.0 + first + (1.0 + 0.5 + 0.125 * 7) + (1.0 + 0.5 + 0.125 * 8)
    assert report.steps == 4


def test_a_request_comes_a_pause_after_its_parent_and_not_before_its_own_time() -> None:
    ids: IdArray = np.arange(4, dtype=np.int32)
    pause, late = 30.0, 100.0
    trace = [
        TraceRequest(0.0, Pieces(ids), ids, "p"),
        TraceRequest(0.0, Pieces(ids), ids, "p", parent=0, pause=pause),
        TraceRequest(late, Pieces(ids), ids, "p", parent=1),
    ]
    simulation = Simulation(trace, Setup(), Machine(), CostModel())
    simulation.run()
    first, second, third = simulation.ends
    assert second - first > pause
    assert second < late < third


def test_priorities_of_the_trace_decide_under_that_policy() -> None:
    ids: IdArray = np.arange(8, dtype=np.int32)
    trace = [TraceRequest(0.0, Pieces(ids + 10 * i), ids[: i + 1], priority=i) for i in range(4)]
    machine = Machine(max_running=1)
    ends = {}
    for policy in ("fcfs", "priority"):
        simulation = Simulation(trace, Setup("none", policy), machine, CostModel(step=1.0))
        simulation.run()
        ends[policy] = [round(end) for end in simulation.ends]
    # One step a token: 1 to 4 of them in the order of arrival, or the longest first, which has the highest priority.
    assert ends == {"fcfs": [1, 3, 6, 10], "priority": [4, 7, 9, 10]}


def test_hints_of_live_programs_save_tokens_when_the_cache_is_small() -> None:
    trace = generate("chat", 300, seed=0, rate=10.0)
    machine = Machine(cache_tokens=40_000)
    plain, hinted = (replay(trace, Setup(eviction=name), machine) for name in ("lru", "program"))
    assert plain.evicted_tokens > 0
    assert hinted.computed_tokens < 0.9 * plain.computed_tokens


def test_a_request_larger_than_the_cache_is_refused() -> None:
    trace = generate("few-shot", 3, seed=0, rate=1.0)
    with pytest.raises(InvalidTrace, match=r"request 0 of the trace has .* the cache holds 496") as caught:
        Simulation(trace, Setup(), Machine(cache_tokens=500), CostModel())
    assert caught.value.field == "cache_tokens"


def test_a_comparison_varies_one_thing_at_a_time() -> None:
    setups = comparison(list(REUSES), ["lpm", "fcfs"], ["lru", "program"])
    assert [setup.name for setup in setups] == [
        "none lpm lru",
        "blocks lpm lru",
        "radix-1 lpm lru",
        "radix-16 lpm lru",
        "radix-64 lpm lru",
        "radix-16 fcfs lru",
        "radix-16 lpm program",
    ]
