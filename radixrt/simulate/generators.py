"""Seeded workloads: the shapes of use that prefix reuse is for. A mean of about 1,000 tokens in and 100 out.

A program's requests stand together, each behind the one it continues. Programs begin at random times (a Poisson
process) such that `rate` requests come a second; what has a parent comes when that is over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np

from radixrt.errors import InvalidRequest
from radixrt.protocol.ids import IdArray
from radixrt.simulate.trace import Pieces, TraceRequest

VOCABULARY = 50_000


class _Draw:
    """Random texts and lengths of one seed."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def text(self, least: int, most: int) -> IdArray:
        """int32 [least to most tokens]"""
        return self.rng.integers(0, VOCABULARY, self.number(least, most), dtype=np.int32)

    def output(self) -> IdArray:
        """int32 [20 to 180 tokens]"""
        return self.text(20, 180)

    def number(self, least: int, most: int) -> int:
        return int(self.rng.integers(least, most + 1))

    def seconds(self, mean: float) -> float:
        return float(self.rng.exponential(mean))


class Program:
    """Requests that belong together; `place` counts from the program's first one."""

    def __init__(self, tenant: str | None = None) -> None:
        self.tenant = tenant
        self.requests: list[tuple[tuple[IdArray, ...], IdArray, int | None, float]] = []

    def ask(self, context: tuple[IdArray, ...], output: IdArray, parent: int | None = None, pause: float = 0.0) -> int:
        """Add a request and return its place."""
        self.requests.append((context, output, parent, pause))
        return len(self.requests) - 1

    def traced(self, name: str, arrival: float, first: int) -> Iterator[TraceRequest]:
        """As they stand in a trace, from the place `first` on."""
        for context, output, parent, pause in self.requests:
            above = None if parent is None else first + parent
            yield TraceRequest(arrival, Pieces(*context), output, name, above, pause, self.tenant)


Programs: TypeAlias = Iterator[Program]


def few_shot(draw: _Draw) -> Programs:
    """One of 40 sets of examples, then a question."""
    examples = [draw.text(500, 1200) for _ in range(40)]
    while True:
        program = Program()
        program.ask((examples[draw.number(0, 39)], draw.text(50, 250)), draw.output())
        yield program


def chat(draw: _Draw) -> Programs:
    """A system prompt of a few, then 1 to 9 turns; people think for half a minute."""
    systems = [draw.text(100, 400) for _ in range(5)]
    while True:
        program = Program()
        _talk(program, draw, (systems[draw.number(0, 4)],))
        yield program


def tree_of_thought(draw: _Draw) -> Programs:
    """A task, then thoughts three wide and three deep; each thought continues the path to it."""
    examples = draw.text(300, 500)
    while True:
        program = Program()
        task = (examples, draw.text(200, 400))
        first = program.ask(task, draw.output())
        paths: list[tuple[int, tuple[IdArray, ...]]] = [(first, (*task, program.requests[first][1]))]
        for _ in range(3):
            below: list[tuple[int, tuple[IdArray, ...]]] = []
            for parent, path in paths:
                for _ in range(3):
                    prompt, thought = (*path, draw.text(5, 20)), draw.output()
                    below.append((program.ask(prompt, thought, parent), (*prompt, thought)))
            paths = below
        yield program


def agents(draw: _Draw) -> Programs:
    """Agents of five kinds with long instructions: 3 to 8 steps with tool pauses, some of which ask a sub-agent."""
    kinds = [draw.text(400, 800) for _ in range(5)]
    while True:
        program = Program()
        context: tuple[IdArray, ...] = (kinds[draw.number(0, 4)], draw.text(30, 150))
        last, pause = None, 0.0
        for _ in range(draw.number(3, 8)):
            output = draw.output()
            last = program.ask(context, output, last, pause)
            if draw.number(1, 5) == 1:
                last, answer = _sub_agent(program, draw, kinds, last)
            else:
                answer = draw.text(20, 150)
            pause = draw.seconds(4.0)
            context = (*context, output, answer)
        yield program


def tenants(draw: _Draw) -> Programs:
    """Eight tenants that share nothing: half of them chat, half ask with examples, the first far more often."""
    texts = [draw.text(400, 900) for _ in range(8)]
    shares = 1 / np.arange(1, 9)
    while True:
        tenant = int(draw.rng.choice(8, p=shares / shares.sum()))
        program = Program(f"tenant-{tenant}")
        if tenant % 2:
            _talk(program, draw, (texts[tenant],))
        else:
            program.ask((texts[tenant], draw.text(50, 250)), draw.output())
        yield program


GENERATORS: dict[str, Callable[[_Draw], Programs]] = {
    "few-shot": few_shot,
    "chat": chat,
    "tree-of-thought": tree_of_thought,
    "agents": agents,
    "tenants": tenants,
}


def generate(kind: str, requests: int, seed: int, rate: float) -> list[TraceRequest]:
    """`requests` requests of a kind, the same for the same arguments; the last program may be cut short.

    Args:
        rate: requests a second. Raises `InvalidRequest`, naming the field, for what is out of range.
    """
    if kind not in GENERATORS:
        raise InvalidRequest(f"generate is {kind!r}; it must be one of {', '.join(GENERATORS)}", field="generate")
    if requests < 1:
        raise InvalidRequest(f"requests is {requests}; it must be at least 1", field="requests")
    if seed < 0:
        raise InvalidRequest(f"seed is {seed}; it must be at least 0", field="seed")
    if not 0 < rate < float("inf"):
        raise InvalidRequest(f"rate is {rate}; it must be more than 0", field="rate")
    draw = _Draw(seed)
    trace: list[TraceRequest] = []
    begins = 0.0
    for number, program in enumerate(GENERATORS[kind](draw)):
        trace.extend(program.traced(f"{kind}-{number}", begins, len(trace)))
        if len(trace) >= requests:
            return trace[:requests]
        begins += draw.seconds(len(program.requests) / rate)
    return trace


def _talk(program: Program, draw: _Draw, context: tuple[IdArray, ...]) -> None:
    last, pause = None, 0.0
    for _ in range(draw.number(1, 9)):
        context, output = (*context, draw.text(20, 250)), draw.output()
        last = program.ask(context, output, last, pause)
        context, pause = (*context, output), draw.seconds(30.0)


def _sub_agent(program: Program, draw: _Draw, kinds: list[IdArray], asked_by: int) -> tuple[int, IdArray]:
    """Two to four steps of an agent that is given a task; the place of its last one, and its answer."""
    context: tuple[IdArray, ...] = (kinds[draw.number(0, 4)], draw.text(30, 100))
    last, pause, output = asked_by, 0.0, draw.output()
    for _ in range(draw.number(2, 4)):
        output = draw.output()
        last = program.ask(context, output, last, pause)
        context, pause = (*context, output, draw.text(20, 150)), draw.seconds(4.0)
    return last, output
