"""Seeded workloads."""

from __future__ import annotations

import numpy as np
import pytest

from radixrt.errors import InvalidRequest
from radixrt.simulate.generators import GENERATORS, generate
from radixrt.simulate.optimum import reusable_tokens
from radixrt.simulate.trace import Trace


def written(trace: Trace) -> list[object]:
    """All that a trace says, comparable."""
    return [
        (r.arrival, r.prompt.ids().tobytes(), r.output.tobytes(), r.program, r.parent, r.pause, r.tenant) for r in trace
    ]


@pytest.mark.parametrize("kind", GENERATORS)
def test_a_seed_gives_one_trace(kind: str) -> None:
    assert written(generate(kind, 100, 7, 10.0)) == written(generate(kind, 100, 7, 10.0))
    assert written(generate(kind, 100, 7, 10.0)) != written(generate(kind, 100, 8, 10.0))


@pytest.mark.parametrize("kind", GENERATORS)
def test_the_requests_have_about_a_thousand_tokens_and_share_most_of_them(kind: str) -> None:
    trace = generate(kind, 400, 0, 10.0)
    prompts = [len(request.prompt) for request in trace]
    assert len(trace) == 400
    assert 800 < np.mean(prompts) < 1300
    assert 90 < np.mean([len(request.output) for request in trace]) < 110
    assert reusable_tokens(trace) > 0.5 * sum(prompts)


@pytest.mark.parametrize("kind", GENERATORS)
def test_a_parent_stands_before_its_children_in_the_same_program(kind: str) -> None:
    trace = generate(kind, 500, 0, 10.0)
    for place, request in enumerate(trace):
        if request.parent is not None:
            assert request.parent < place
            assert trace[request.parent].program == request.program


def test_a_turn_continues_the_one_before_it() -> None:
    trace = generate("chat", 200, 0, 10.0)
    turns = [request for request in trace if request.parent is not None]
    assert turns
    for turn in turns:
        before = trace[turn.parent or 0]
        context = np.concatenate([before.prompt.ids(), before.output])
        assert (turn.prompt.ids()[: len(context)] == context).all()


def test_agents_ask_sub_agents_and_pause_for_tools() -> None:
    trace = generate("agents", 500, 0, 10.0)
    following = [request for request in trace if request.parent is not None]
    fresh = [
        request
        for request in following
        if not np.array_equal(request.prompt.ids()[:100], trace[request.parent or 0].prompt.ids()[:100])
    ]
    assert 0 < len(fresh) < len(following)
    assert 3 < np.mean([request.pause for request in following if request.pause]) < 5


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (("poems", 1, 0, 1.0), "generate"),
        (("chat", 0, 0, 1.0), "requests"),
        (("chat", 1, -1, 1.0), "seed"),
        (("chat", 1, 0, 0.0), "rate"),
        (("chat", 1, 0, float("nan")), "rate"),
    ],
)
def test_what_is_out_of_range_is_refused(arguments: tuple[str, int, int, float], field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        generate(*arguments)
    assert caught.value.field == field
