"""Replays one trace under several setups, in parallel processes, each of which loads the trace itself."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait

from radixrt.errors import InternalError, RadixError
from radixrt.simulate.costs import CostModel
from radixrt.simulate.report import Report
from radixrt.simulate.setups import Machine, Setup
from radixrt.simulate.simulation import Simulation
from radixrt.simulate.source import Source


def compare(
    source: Source,
    setups: Sequence[Setup],
    machine: Machine,
    costs: CostModel,
    processes: int,
    on_progress: Callable[[int, int], None] = lambda setup, ended: None,
) -> list[Report]:
    """One report for each setup, in their order.

    Args:
        on_progress: told the place of a setup and how many of its requests have ended.

    Raises the error of the first replay that failed, or `InternalError` if a process died.
    """
    context = multiprocessing.get_context("spawn")
    pipes: list[Connection] = []
    children = []
    try:
        for _ in range(min(processes, len(setups))):
            ours, theirs = context.Pipe()
            child = context.Process(target=_replay_all, args=(source, machine, costs, theirs), daemon=True)
            child.start()
            theirs.close()
            pipes.append(ours)
            children.append(child)
        return _collect(pipes, setups, on_progress)
    finally:
        for pipe in pipes:
            pipe.close()
        for child in children:
            child.terminate()
            child.join()


def _collect(
    pipes: Sequence[Connection], setups: Sequence[Setup], on_progress: Callable[[int, int], None]
) -> list[Report]:
    reports: dict[int, Report] = {}
    waiting = list(enumerate(setups))[::-1]
    at_work: dict[Connection, int] = {}

    def give_work(pipe: Connection) -> None:
        if waiting:
            at_work[pipe], setup = waiting.pop()
            pipe.send(setup)

    for pipe in pipes:
        give_work(pipe)
    while at_work:
        for ready in wait(list(at_work)):
            assert isinstance(ready, Connection)
            match _receive(ready):
                case int(ended):
                    on_progress(at_work[ready], ended)
                case Report() as report:
                    reports[at_work.pop(ready)] = report
                    give_work(ready)
                case RadixError() as error:
                    raise error
    return [reports[place] for place in range(len(setups))]


def _receive(pipe: Connection) -> object:
    try:
        return pipe.recv()
    except EOFError:
        raise InternalError("a process that replays the trace has died; its own message stands above") from None


def _replay_all(source: Source, machine: Machine, costs: CostModel, pipe: Connection) -> None:
    """What a child does: take setups, send progress and a report for each, until it is ended."""
    try:
        trace = source.load()
        while True:
            setup = pipe.recv()
            pipe.send(Simulation(trace, setup, machine, costs).run(on_progress=pipe.send))
    except RadixError as error:
        pipe.send(error)
    except (EOFError, KeyboardInterrupt):
        pass  # The parent has gone, or is about to.
