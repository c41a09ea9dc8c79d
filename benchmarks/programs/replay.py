"""Sends recorded messages to a worker, many runs at once, and counts the rows that its executor writes.

Time is the worker's steps: a run's next message leaves `pause` steps after all that it sent is over, its next run
begins when one ends. So a replay is the same every time, and what differs between two of them is the policies' doing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Protocol

from benchmarks.programs.model import Language
from benchmarks.programs.recording import CLIENT, RecordedRun
from benchmarks.programs.worker import PAGE_SIZE, Policies, SimulatedWorker
from radixrt.protocol.events import Event, Failed, Finished, Scored, Tokens
from radixrt.protocol.messages import CloseProgram, SubmitTree
from radixrt.worker.programs import Programs

AT_ONCE = 16


@dataclass(frozen=True)
class Outcome:
    """What became of a replay."""

    rows: int
    steps: int
    evicted_pages: int
    preemptions: int


class Worker(Protocol):
    """A worker that has done nothing yet, and counts the rows that are written."""

    programs: Programs

    @property
    def rows_written(self) -> int:
        """By the executor, to the KV pool; copies of pages do not count."""
        ...


class Replay:
    """One replay on a worker of its own."""

    def __init__(self, runs: Sequence[RecordedRun], worker: Worker, at_once: int = AT_ONCE) -> None:
        self._runs = runs
        self._worker = worker
        self._at_once = at_once
        self._now = 0
        self._begun = 0
        self._due: list[tuple[int, int]] = []
        """When which run's next message leaves."""
        self._sent = [0] * len(runs)
        """Messages sent, by run..."""
        self._open = [0] * len(runs)
        """...and ends that are still to come."""
        self._outputs: list[dict[tuple[int, int], bytes]] = [{} for _ in runs]

    def run(self) -> Outcome:
        """Replay all. Raises `AssertionError` if a run failed, or did not say what it said in the recording."""
        for _ in range(self._at_once):
            self._begin_next()
        programs = self._worker.programs
        while self._due or programs.busy:
            if not programs.busy:
                self._now = max(self._now, self._due[0][0])
            while self._due and self._due[0][0] <= self._now:
                self._send(heappop(self._due)[1])
            events = programs.step().get(CLIENT, [])
            self._now += 1
            for event in events:
                self._take(event)
        for number, (run, outputs) in enumerate(zip(self._runs, self._outputs, strict=True)):
            assert outputs == run.outputs, f"run {number} said something else than in the recording"
        stats = programs.stats()
        assert stats.leases == stats.pages_owned == 0, "something was left behind"
        return Outcome(self._worker.rows_written, stats.steps, stats.evicted_pages, stats.preemptions)

    def _begin_next(self) -> None:
        if self._begun < len(self._runs):
            self._wait_for_turn(self._begun)
            self._begun += 1

    def _wait_for_turn(self, number: int) -> None:
        message = self._runs[number].messages[self._sent[number]]
        heappush(self._due, (self._now + message.pause, number))

    def _send(self, number: int) -> None:
        run = self._runs[number]
        message = run.messages[self._sent[number]]
        self._sent[number] += 1
        self._open[number] += sum(node.ends for node in message.nodes)
        self._worker.programs.submit(CLIENT, SubmitTree(number, message.nodes, run.terms))

    def _take(self, event: Event) -> None:
        number = event.program
        match event:
            case Tokens():
                outputs, key = self._outputs[number], (event.node, event.choice)
                outputs[key] = outputs.get(key, b"") + event.ids
            case Finished() | Scored():
                self._open[number] -= 1
                if not self._open[number]:
                    self._all_over(number)
            case Failed():
                raise AssertionError(f"run {number}, node {event.node}: {event.message}")

    def _all_over(self, number: int) -> None:
        if self._sent[number] < len(self._runs[number].messages):
            self._wait_for_turn(number)
            return
        self._worker.programs.close(CLIENT, CloseProgram(number))
        self._begin_next()


def replay(
    runs: Sequence[RecordedRun], language: Language, pages: int, policies: Policies, at_once: int = AT_ONCE
) -> Outcome:
    """Replay all runs on a new worker with so many pages."""
    return Replay(runs, SimulatedWorker(language, pages, policies, page_size=PAGE_SIZE), at_once).run()
