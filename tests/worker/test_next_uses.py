"""What the runtime makes of knowing the programs: whose prefixes stay, and whose turn it is."""

from __future__ import annotations

import numpy as np
import pytest

from radixrt.cache.prefix_cache import PrefixCache
from radixrt.protocol.events import Event, Finished
from radixrt.protocol.ids import pack_ids
from radixrt.protocol.messages import Abort, CloseProgram, SubmitTree, TreeNode, Welcome
from radixrt.protocol.sampling import SamplingParams
from radixrt.protocol.segments import Ids
from radixrt.protocol.terms import NO_TERMS, ProgramTerms
from radixrt.scheduler.scheduler import Limits, Scheduler
from radixrt.worker.engine import Engine
from radixrt.worker.programs import Programs
from tests.support.simulated_model import END_ID, LetterVocabulary, SimulatedExecutor
from tests.support.word_grammars import WordCompiler

AGENT, CROWD = b"agent", b"crowd"
SHORT = SamplingParams(temperature=0.0, max_tokens=2, ignore_eos=True)
PAGES, PAGE_SIZE = 64, 4
WELCOME = Welcome(1, "simulated", "cpu", "none", "none", PAGE_SIZE, PAGES, 0, 256, 256)


class World:
    """Programs over an engine with a small cache, and a crowd of calls that share nothing."""

    def __init__(self, eviction: str = "program", schedule: str = "lpm", max_running: int = 8) -> None:
        self.cache = PrefixCache(PAGES, PAGE_SIZE, eviction)
        self.scheduler = Scheduler(self.cache, Limits(max_running, 64, PAGES * PAGE_SIZE), schedule)
        executor = SimulatedExecutor(PAGES, PAGE_SIZE)
        engine = Engine(self.scheduler, executor, LetterVocabulary(), frozenset([END_ID]), WordCompiler())
        self.programs = Programs(engine, WELCOME)
        self.finished: list[tuple[bytes, Finished]] = []
        self._calls = 1000
        self._rng = np.random.default_rng(0)

    def submit(self, client: bytes, program: int, *nodes: TreeNode, terms: ProgramTerms = NO_TERMS) -> None:
        self.programs.submit(client, SubmitTree(program, nodes, terms))

    def run(self) -> None:
        while self.programs.busy:
            for client, events in self.programs.step().items():
                self._take(client, events)
            self.scheduler.check_invariants()

    def crowd(self, pages: int) -> None:
        """Calls that compute so many pages in all, one after the other; each is closed when it is done."""
        before = self.cache.counters.evicted_pages
        for _ in range(-(-pages // 10)):
            self._calls += 1
            self.submit(CROWD, self._calls, node(1, None, self.prompt(39)))
            self.run()
            self.programs.close(CROWD, CloseProgram(self._calls))
        assert self.cache.counters.evicted_pages > before, "nothing was evicted"

    def prompt(self, length: int) -> list[int]:
        prompt: list[int] = self._rng.integers(1, 256, length).tolist()
        return prompt

    def cached_tokens(self, program: int, number: int) -> int:
        (end,) = [end for client, end in self.finished if (client, end.program, end.node) == (AGENT, program, number)]
        return end.usage.cached_tokens

    @property
    def hints(self) -> int:
        expectations = self.cache._tree.expectations
        return 0 if expectations is None else len(expectations)

    def _take(self, client: bytes, events: list[Event]) -> None:
        self.finished += [(client, event) for event in events if isinstance(event, Finished)]


def node(number: int, parent: int | None, ids: list[int], sampling: SamplingParams | None = SHORT) -> TreeNode:
    return TreeNode(number, parent, (Ids(pack_ids(ids)),), sampling)


@pytest.mark.parametrize(("eviction", "kept"), [("program", True), ("lru", False), ("fifo", False)])
def test_an_agent_that_pauses_finds_its_context_again(eviction: str, kept: bool) -> None:
    world = World(eviction)
    world.submit(AGENT, 1, node(1, None, world.prompt(60)))
    world.run()
    world.crowd(pages=PAGES)
    world.submit(AGENT, 1, node(2, 1, [7, 8]))
    world.run()
    # Of its answer the last token was never computed; a hint is for whole pages.
    assert (world.cached_tokens(1, 2) >= 60) is kept


def test_it_is_forgotten_when_its_program_ends() -> None:
    world = World()
    world.submit(AGENT, 1, node(1, None, world.prompt(60)))
    world.run()
    assert world.hints == 1
    world.programs.close(AGENT, CloseProgram(1))
    assert world.hints == 0


def test_it_is_forgotten_when_its_client_dies() -> None:
    world = World()
    for program in (1, 2):
        world.submit(AGENT, program, node(1, None, world.prompt(30)))
    world.run()
    assert world.hints == 2
    world.programs.drop_client(AGENT)
    assert world.hints == 0


def test_a_program_that_fell_silent_holds_nothing_for_ever() -> None:
    world = World()
    world.submit(AGENT, 1, node(1, None, world.prompt(60)))
    world.run()
    world.crowd(pages=3 * PAGES)
    assert world.hints == 0
    world.submit(AGENT, 1, node(2, 1, [7, 8]))
    world.run()
    assert world.cached_tokens(1, 2) == 0


def test_a_chain_is_expected_where_it_ends_and_a_fork_where_it_begins_too() -> None:
    world = World()
    world.submit(AGENT, 1, node(1, None, world.prompt(20)), node(2, 1, [5, 6]))
    world.run()
    assert world.hints == 1
    world.submit(AGENT, 1, *(node(3 + i, 2, [10 + i]) for i in range(3)))
    world.run()
    assert world.hints == 4


def test_after_a_join_the_prefix_of_the_fork_is_there() -> None:
    """The branches are long, and so is what comes between."""
    world = World()
    world.submit(AGENT, 1, node(1, None, world.prompt(60), None), *(node(2 + i, 1, [10 + i]) for i in range(3)))
    world.run()
    world.crowd(pages=PAGES)
    world.submit(AGENT, 1, node(9, 1, [1, 2, 3]))
    world.run()
    assert world.cached_tokens(1, 9) == 60


def test_a_branch_that_its_program_passes_over_is_not_expected_any_more() -> None:
    """Three thoughts; the program goes on with the second."""
    world = World()
    world.submit(AGENT, 1, node(1, None, world.prompt(8), None), *(node(2 + i, 1, [10 + i]) for i in range(3)))
    world.run()
    assert world.hints == 4
    world.submit(AGENT, 1, node(9, 3, world.prompt(8)))
    assert world.hints == 1
    world.run()
    assert world.hints == 1  # Where it ends, now.


def test_what_a_program_passes_over_makes_room_before_what_another_one_expects() -> None:
    world = World()
    world.submit(AGENT, 1, node(1, None, world.prompt(8), None), *(node(2 + i, 1, world.prompt(60)) for i in range(2)))
    world.submit(AGENT, 2, node(1, None, world.prompt(60)))
    world.run()
    world.submit(AGENT, 1, node(9, 2, [7]))
    world.run()
    world.crowd(pages=PAGES // 2)
    world.submit(AGENT, 1, node(10, 3, [8]))  # After all.
    world.submit(AGENT, 2, node(2, 1, [8]))
    world.run()
    assert world.cached_tokens(2, 2) >= 60
    assert world.cached_tokens(1, 10) < 60


def test_what_still_runs_is_passed_over_by_nobody() -> None:
    world = World()
    long = SamplingParams(temperature=0.0, max_tokens=20, ignore_eos=True)
    world.submit(AGENT, 1, node(1, None, world.prompt(8), None), node(2, 1, [5]), node(3, 1, [6], long))
    while not world.finished:
        for client, events in world.programs.step().items():
            world._take(client, events)
    world.submit(AGENT, 1, node(4, 2, [7]))
    world.run()
    # The fork's point for what may follow a join, and the ends of both branches.
    assert world.hints == 3


def test_who_was_away_longer_goes_before_who_comes_back_sooner() -> None:
    """The pool has room for one of their contexts beside a long prompt."""
    world = World()
    for program in (1, 2):
        world.submit(AGENT, program, node(1, None, world.prompt(100)))
        world.run()
    for _ in range(3):
        world._calls += 1
        world.submit(CROWD, world._calls, node(1, None, [1]))
        world.run()
    world.submit(AGENT, 2, node(2, 1, [9]))  # It was away for three.
    world.run()
    world.submit(AGENT, 1, node(2, 1, [9]))  # It was away longer, though it is the one used last.
    world.run()
    world.submit(CROWD, 1, node(1, None, world.prompt(120)))
    world.run()
    assert world.cache.counters.evicted_pages > 10
    for program in (2, 1):
        world.submit(AGENT, program, node(3, 2, [9]))
        world.run()
    assert world.cached_tokens(2, 3) >= 100
    assert world.cached_tokens(1, 3) < 80


def test_under_any_eviction_policy_an_abort_leaves_no_hint_behind() -> None:
    world = World()
    world.submit(AGENT, 1, node(1, None, world.prompt(20)), node(2, 1, [5]))
    world.programs.step()
    world.programs.abort(AGENT, Abort(1))
    world.run()
    world.programs.close(AGENT, CloseProgram(1))
    assert world.hints == 0


def order_of_first_tokens(world: World, *programs: int) -> list[int]:
    world.run()
    return [end.program for client, end in world.finished if client == AGENT and end.program in programs]


def test_programs_with_less_work_left_go_first_when_asked() -> None:
    world = World(schedule="program", max_running=1)
    for program, steps in enumerate([5, 2, None, 3]):
        world.submit(AGENT, program, node(1, None, world.prompt(9)), terms=ProgramTerms(steps=steps))
    # A call that says nothing is one step.
    assert order_of_first_tokens(world, 0, 1, 2, 3) == [2, 1, 3, 0]


def test_what_a_program_has_done_is_no_work_left() -> None:
    world = World(schedule="program", max_running=1)
    world.submit(AGENT, 1, node(1, None, [1]), terms=ProgramTerms(steps=3))
    world.submit(AGENT, 1, node(2, 1, [2]))
    world.run()
    world.finished.clear()
    world.submit(AGENT, 2, node(1, None, world.prompt(9)), terms=ProgramTerms(steps=2))
    world.submit(AGENT, 1, node(3, 2, world.prompt(9)))
    assert order_of_first_tokens(world, 1, 2) == [1, 2]
