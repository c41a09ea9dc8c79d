"""Request trees over an engine on the simulated model."""

from __future__ import annotations

import numpy as np
import pytest

from radixrt.cache.prefix_cache import PrefixCache
from radixrt.protocol.events import Event, Failed, Finished, Tokens
from radixrt.protocol.ids import pack_ids, unpack_ids
from radixrt.protocol.messages import Abort, CloseProgram, SubmitTree, TreeNode, Welcome
from radixrt.protocol.sampling import SamplingParams
from radixrt.protocol.segments import Ids, Text
from radixrt.protocol.terms import ProgramTerms
from radixrt.scheduler.scheduler import Limits, Scheduler
from radixrt.worker.engine import Engine
from radixrt.worker.programs import Programs
from tests.support.simulated_model import END_ID, LetterVocabulary, SimulatedExecutor, fingerprint
from tests.support.word_grammars import WordCompiler

CLIENT = b"client"
GREEDY = SamplingParams(temperature=0.0, max_tokens=6, ignore_eos=True)
WELCOME = Welcome(1, "simulated", "cpu", "none", "none", 4, 64, 0, 256, 256)


class Harness:
    def __init__(self, pages: int = 256, max_queue: int = 1000) -> None:
        self.cache = PrefixCache(pages, 4)
        self.scheduler = Scheduler(self.cache, Limits(16, 64, pages * 4, max_queue))
        self.executor = SimulatedExecutor(pages, 4)
        self.engine = Engine(self.scheduler, self.executor, LetterVocabulary(), frozenset([END_ID]), WordCompiler())
        self.programs = Programs(self.engine, WELCOME)
        self.events: list[Event] = []

    def submit(self, *nodes: TreeNode, program: int = 1) -> None:
        self.programs.submit(CLIENT, SubmitTree(program, nodes))

    def run(self, steps: int = 1000) -> None:
        for _ in range(steps):
            if not self.programs.busy:
                return
            self.events += self.programs.step().get(CLIENT, [])
            self.scheduler.check_invariants()

    def output(self, node: int, choice: int = 0) -> list[int]:
        pieces = [e.ids for e in self.events if isinstance(e, Tokens) and (e.node, e.choice) == (node, choice)]
        return [int(i) for piece in pieces for i in unpack_ids(piece)]

    def ends(self, node: int) -> dict[int, Finished | Failed]:
        found: dict[int, Finished | Failed] = {}
        for event in self.events:
            if isinstance(event, Finished | Failed) and event.node == node:
                assert event.choice not in found, "a choice ended twice"
                found[event.choice] = event
        return found


def node(number: int, parent: int | None, ids: list[int], sampling: SamplingParams | None = GREEDY) -> TreeNode:
    return TreeNode(number, parent, (Ids(pack_ids(ids)),), sampling)


def greedy(prompt: list[int], count: int) -> list[int]:
    tokens = list(prompt)
    for _ in range(count):
        prefix = fingerprint(tokens)
        tokens.append(END_ID if prefix % 32 == 0 else 97 + (prefix >> 8) % 26)
    return tokens[len(prompt) :]


def test_a_child_sent_with_its_parent_continues_what_the_parent_generated() -> None:
    harness = Harness()
    harness.submit(node(1, None, [1, 2]), node(2, 1, [3]))
    harness.run()
    first = greedy([1, 2], 6)
    assert harness.output(1) == first
    assert harness.output(2) == greedy([1, 2, *first, 3], 6)


def test_a_child_sent_later_continues_the_same_context() -> None:
    harness = Harness()
    harness.submit(node(1, None, [1, 2]))
    harness.run()
    harness.submit(node(2, 1, [3]))
    harness.run()
    assert harness.output(2) == greedy([1, 2, *harness.output(1), 3], 6)


def test_branches_of_a_fork_point_share_its_tokens() -> None:
    harness = Harness()
    shared = list(range(1, 31))
    harness.submit(node(1, None, shared, None), *(node(2 + i, 1, [40 + i]) for i in range(5)))
    harness.run()
    assert harness.ends(1) == {}, "a fork point ends silently"
    for i in range(5):
        assert harness.output(2 + i) == greedy([*shared, 40 + i], 6)
    assert harness.executor.rows_written == 30 + 5 * 6


@pytest.mark.parametrize("own", [1, 0])
def test_a_fork_of_64_branches_computes_2000_shared_tokens_once(own: int) -> None:
    """Rows that the kernels write. A branch without tokens of its own computes the last shared one for its logits."""
    harness = Harness(pages=1024)
    shared = [number * number % 251 for number in range(2000)]
    params = [SamplingParams(seed=number, max_tokens=3, ignore_eos=True) for number in range(64)]
    branches = [node(2 + i, 1, [i] * own, params[i]) for i in range(64)]
    harness.submit(node(1, None, shared, None), *branches)
    harness.run()
    assert all(isinstance(harness.ends(branch.id)[0], Finished) for branch in branches)
    # Of what a branch generates, the last token is never computed.
    unique = 2000 + 64 * (own + 2)
    assert 2000 < harness.executor.rows_written <= 1.01 * unique + 64 * (1 - own)


def test_children_continue_choice_0() -> None:
    harness = Harness()
    params = SamplingParams(max_tokens=5, n=3, seed=4, ignore_eos=True)
    harness.submit(node(1, None, [9, 9], params), node(2, 1, [8]))
    harness.run()
    assert set(harness.ends(1)) == {0, 1, 2}
    assert harness.output(2) == greedy([9, 9, *harness.output(1, 0), 8], 6)


def test_a_stop_string_leaves_only_the_visible_text_in_the_context() -> None:
    """D14"""
    harness = Harness()
    whole = greedy([5, 5], 6)
    stop = bytes(whole[2:4]).decode()
    harness.submit(
        node(1, None, [5, 5], SamplingParams(temperature=0.0, max_tokens=6, stop=(stop,), ignore_eos=True)),
        node(2, 1, [7]),
    )
    harness.run()
    end = harness.ends(1)[0]
    assert isinstance(end, Finished)
    assert (end.reason, end.matched, end.kept) == ("stop", stop, 2)
    assert harness.output(2) == greedy([5, 5, *whole[:2], 7], 6)


def test_a_node_that_fails_takes_its_descendants_and_leaves_its_siblings() -> None:
    harness = Harness()
    harness.submit(
        node(1, None, [1], None),
        node(2, 1, [999]),
        node(3, 2, [1], SamplingParams(n=2)),
        node(4, 1, [2]),
    )
    harness.run()
    assert [e.field for e in harness.ends(2).values() if isinstance(e, Failed)] == ["prompt"]
    assert [type(e) for e in harness.ends(3).values()] == [Failed, Failed]
    assert isinstance(harness.ends(4)[0], Finished)


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        (node(2, 77, [1]), "parent"),
        (node(1, None, [1]), "id"),
        (TreeNode(2, None, (Text("words"),), GREEDY), "segments"),
        (TreeNode(2, None, (Ids(b"abc"),), GREEDY), "segments"),
        (TreeNode(2, None, (), GREEDY), "prompt"),
        (node(2, None, [1], SamplingParams(temperature=-1.0)), "temperature"),
        (node(2, None, [1], SamplingParams(stop_token_ids=(999,))), "stop_token_ids"),
        (node(2, None, [1], SamplingParams(logit_bias={-1: 5.0})), "logit_bias"),
        (node(2, None, [-1]), "prompt"),
        (node(2, None, [1] * 5000), "prompt"),
    ],
)
def test_a_wrong_node_is_told_with_its_field_and_disturbs_nobody(bad: TreeNode, field: str) -> None:
    """H09 and its kind."""
    harness = Harness()
    harness.submit(node(1, None, [1, 2]))
    harness.submit(bad)
    harness.run()
    failures = [e for e in harness.events if isinstance(e, Failed)]
    assert [(e.node, e.field) for e in failures] == [(bad.id, field)]
    assert harness.output(1) == greedy([1, 2], 6)
    assert harness.cache.leases == 0


@pytest.mark.parametrize("n", [0, -1, 129, 10**9])
def test_a_number_of_choices_out_of_range_is_refused_at_once(n: int) -> None:
    """S10"""
    harness = Harness()
    harness.submit(node(1, None, [1], SamplingParams(n=n)), node(2, None, [2]))
    harness.run()
    assert {e.field for e in harness.events if isinstance(e, Failed)} <= {"n"}
    assert len(harness.ends(1)) == min(max(n, 0), 128)
    assert isinstance(harness.ends(2)[0], Finished)


def test_aborting_a_node_ends_it_and_all_below_it_once() -> None:
    harness = Harness()
    endless = SamplingParams(temperature=0.0, max_tokens=200, ignore_eos=True)
    harness.submit(node(1, None, [1], endless), node(2, 1, [2]), node(3, None, [3]))
    harness.run(steps=3)
    harness.programs.abort(CLIENT, Abort(1, 1))
    harness.programs.abort(CLIENT, Abort(1, 1))
    harness.programs.abort(CLIENT, Abort(1, 55))
    harness.programs.abort(CLIENT, Abort(99))
    harness.run()
    assert [e.kind for e in harness.ends(1).values() if isinstance(e, Failed)] == ["Aborted"]
    assert [e.kind for e in harness.ends(2).values() if isinstance(e, Failed)] == ["Aborted"]
    assert isinstance(harness.ends(3)[0], Finished)
    assert harness.cache.leases == harness.cache.owned_pages == 0


def test_a_node_aborted_while_it_waits_for_its_parent_is_never_started() -> None:
    harness = Harness()
    harness.submit(node(1, None, [1]), node(2, 1, [2]), node(3, 1, [3], None), node(4, 3, [4]))
    harness.run(steps=2)
    harness.programs.abort(CLIENT, Abort(1, 2))
    harness.programs.abort(CLIENT, Abort(1, 3))
    harness.run()
    assert isinstance(harness.ends(1)[0], Finished)
    for number in (2, 4):
        assert [e.kind for e in harness.ends(number).values() if isinstance(e, Failed)] == ["Aborted"]
        assert harness.output(number) == []
    assert harness.programs.stats().aborts == {"blocked": 2}


def test_closing_a_program_aborts_what_is_live_without_a_word() -> None:
    harness = Harness()
    endless = SamplingParams(temperature=0.0, max_tokens=200, ignore_eos=True)
    harness.submit(node(1, None, [1], endless))
    harness.run(steps=3)
    harness.events.clear()
    harness.programs.close(CLIENT, CloseProgram(1))
    harness.run()
    assert harness.events == []
    assert not harness.engine.busy
    assert harness.cache.leases == 0


def test_dropping_a_client_leaves_the_others_alone() -> None:
    harness = Harness()
    harness.submit(node(1, None, [1, 2]))
    harness.programs.submit(b"other", SubmitTree(1, (node(1, None, [3, 4]),)))
    harness.programs.drop_client(b"other")
    harness.run()
    assert harness.output(1) == greedy([1, 2], 6)
    assert harness.programs.stats().leases == 0


def test_a_chain_of_a_thousand_nodes_runs_and_fails_without_deep_recursion() -> None:
    harness = Harness(pages=2048)
    one = SamplingParams(temperature=0.0, max_tokens=1, ignore_eos=True)
    points = [node(i, i - 1 if i else None, [1], None) for i in range(2000)]
    harness.submit(*points, node(2000, 1999, [5], one))
    harness.run()
    assert isinstance(harness.ends(2000)[0], Finished)
    chain = [node(i, i - 1 if i else None, [1], one) for i in range(2000)]
    harness.submit(*chain, program=2)
    harness.programs.abort(CLIENT, Abort(2, 0))
    harness.run()
    assert sum(isinstance(e, Failed) for e in harness.events) == 2000


def test_the_page_gauges_add_up_to_the_pool() -> None:
    harness = Harness(pages=64)
    rng = np.random.default_rng(0)
    for number in range(20):
        harness.submit(node(number, None, rng.integers(1, 256, 40).tolist()))
    while harness.programs.busy:
        harness.programs.step()
        stats = harness.programs.stats()
        assert stats.pages_free + stats.pages_owned + stats.pages_tree == 64
    assert stats.evicted_pages > 0


def test_programs_of_different_salts_share_no_prefix_and_those_of_the_same_do() -> None:
    """C04"""
    harness = Harness()
    prompt = list(range(1, 40))
    for program, salt in enumerate(["a", "b", "a", None]):
        terms = ProgramTerms(cache_salt=salt)
        harness.programs.submit(CLIENT, SubmitTree(program, (node(program, None, prompt),), terms))
        harness.run()
    ends = {number: harness.ends(number)[0] for number in range(4)}
    cached = [end.usage.cached_tokens for end in ends.values() if isinstance(end, Finished)]
    assert cached == [0, 0, 38, 0]
    assert harness.output(0) == harness.output(1) == harness.output(3)


def test_terms_out_of_range_fail_the_nodes_that_came_with_them() -> None:
    harness = Harness()
    harness.programs.submit(CLIENT, SubmitTree(1, (node(1, None, [1]),), ProgramTerms(steps=0)))
    harness.run()
    (failed,) = harness.ends(1).values()
    assert isinstance(failed, Failed)
    assert failed.field == "steps"


def test_the_branches_of_a_fork_and_the_choices_of_a_node_are_siblings() -> None:
    harness = Harness()
    harness.submit(node(1, None, [1] * 20, None), *(node(2 + i, 1, [40 + i]) for i in range(3)), node(9, None, [7]))
    harness.submit(node(10, None, [8], SamplingParams(n=3)))
    found: dict[int, list[int | None]] = {}
    harness.engine.scheduler.plan()
    for request, owner in harness.programs._owners.items():
        found.setdefault(owner.spec.id, []).append(harness.engine._live[request].request.siblings)
    assert found[2] == found[3] == found[4] != found[10]
    assert found[9] == [None]
    assert len(set(found[10])) == 1


def test_a_node_of_more_choices_than_may_wait_fails_whole() -> None:
    """S11: nothing of it is left behind, and others go on."""
    harness = Harness(max_queue=4)
    harness.submit(node(1, None, [1, 2], SamplingParams(n=5, max_tokens=2)), node(2, None, [3]))
    harness.run()
    ends = harness.ends(1)
    assert [end.kind for end in ends.values() if isinstance(end, Failed)] == ["QueueFull"] * 5
    assert isinstance(harness.ends(2)[0], Finished)
    assert not harness.programs.busy
