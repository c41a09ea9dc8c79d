"""Constraints in the engine: the wait for a grammar, masks, and ends."""

from __future__ import annotations

import pytest

from radixrt.cache.prefix_cache import PrefixCache
from radixrt.errors import InvalidConstraint, PromptTooLong
from radixrt.protocol.constraint import Choice, Regex
from radixrt.protocol.ids import as_ids
from radixrt.protocol.sampling import SamplingParams
from radixrt.scheduler.scheduler import Limits, Scheduler
from radixrt.worker.engine import Completion, Engine, EngineEvent, Failure, Progress
from tests.support.simulated_model import END_ID, LetterVocabulary, SimulatedExecutor
from tests.support.word_grammars import WordCompiler

PAGES = 64


class Harness:
    """An engine whose model looks at its masks."""

    def __init__(self) -> None:
        self.compiler = WordCompiler()
        scheduler = Scheduler(PrefixCache(PAGES, 4), Limits(8, 16, PAGES * 4))
        self.engine = Engine(
            scheduler, SimulatedExecutor(PAGES, 4), LetterVocabulary(), frozenset([END_ID]), self.compiler
        )
        self.events: list[EngineEvent] = []

    def add(self, *options: str, seed: int = 0, **params: object) -> int:
        constraint = Choice(options)
        return self.engine.add(as_ids(b"ask"), SamplingParams(constraint=constraint, **params), seed=seed)  # type: ignore[arg-type]

    def run(self, steps: int = 1000) -> None:
        for _ in range(steps):
            if not self.engine.busy:
                return
            self.events += self.engine.step()
            self.engine.scheduler.check_invariants()

    def end(self, request: int) -> Completion | Failure:
        (end,) = [e for e in self.events if isinstance(e, Completion | Failure) and e.request == request]
        return end

    def text(self, request: int) -> str:
        end = self.end(request)
        assert isinstance(end, Completion)
        return bytes(end.output[: end.end.kept].tolist()).decode()


def test_the_text_is_what_the_constraint_admits_and_ends_without_an_end_of_turn() -> None:
    harness = Harness()
    requests = [harness.add("plum", "fig", "sloe", seed=seed) for seed in range(20)]
    harness.run()
    assert {harness.text(request) for request in requests} == {"plum", "fig", "sloe"}
    for request in requests:
        end = harness.end(request)
        assert isinstance(end, Completion)
        assert (end.end.reason, end.end.matched) == ("stop", None)
        assert len(end.output) == end.end.kept


def test_an_end_of_turn_may_come_where_the_text_is_complete_and_nowhere_else() -> None:
    """D06: an option that is a prefix of another can be reached, and so can the other."""
    harness = Harness()
    requests = [harness.add("in", "into", "into it", seed=seed) for seed in range(60)]
    harness.run()
    assert {harness.text(request) for request in requests} == {"in", "into", "into it"}


def test_a_stop_token_ends_only_a_complete_text() -> None:
    """J01: an ordinary token that was asked to end the generation is no text any more."""
    harness = Harness()
    request = harness.add("axle", "a", stop_token_ids=(ord("x"),), ignore_eos=True)
    harness.run()
    end = harness.end(request)
    assert isinstance(end, Completion)
    assert (harness.text(request), end.end.matched) == ("a", ord("x"))


def test_min_tokens_does_not_outlast_the_constraint() -> None:
    harness = Harness()
    request = harness.add("fig", min_tokens=10)
    harness.run()
    assert harness.text(request) == "fig"


def test_a_text_that_is_cut_says_so() -> None:
    harness = Harness()
    request = harness.add("plum", max_tokens=2)
    harness.run()
    end = harness.end(request)
    assert isinstance(end, Completion)
    assert (harness.text(request), end.end.reason) == ("pl", "length")


def test_logit_bias_cannot_force_what_the_constraint_forbids() -> None:
    harness = Harness()
    request = harness.add("fig", logit_bias={ord("z"): 100.0})
    harness.run()
    assert harness.text(request) == "fig"


def test_while_a_grammar_is_compiled_others_go_on() -> None:
    harness = Harness()
    harness.compiler.hold = True
    waiting = harness.add("fig")
    plain = harness.engine.add(as_ids(b"ask"), SamplingParams(max_tokens=4, ignore_eos=True), seed=1)
    assert not harness.engine.stalled
    harness.run(steps=20)
    assert isinstance(harness.end(plain), Completion)
    assert harness.engine.stalled
    woken: list[bool] = []
    harness.engine.grammars.on_ready = lambda: woken.append(True)
    harness.compiler.release()
    assert woken
    harness.run()
    assert harness.text(waiting) == "fig"


def test_a_request_that_waits_for_its_grammar_can_be_aborted() -> None:
    harness = Harness()
    harness.compiler.hold = True
    request = harness.add("fig")
    assert harness.engine.abort(request)
    assert not harness.engine.abort(request)
    assert harness.engine.aborts == {"awaiting grammar": 1}
    assert not harness.engine.busy
    harness.compiler.release()
    assert harness.engine.step() == []


def test_a_constraint_that_cannot_be_enforced_fails_its_request_alone() -> None:
    harness = Harness()
    bad = harness.engine.add(as_ids(b"ask"), SamplingParams(constraint=Regex("(?=x)")), seed=0)
    good = harness.add("fig")
    harness.run()
    end = harness.end(bad)
    assert isinstance(end, Failure)
    assert isinstance(end.error, InvalidConstraint)
    assert harness.text(good) == "fig"


@pytest.mark.parametrize("word", ["fi!g", "fi?g"])
def test_a_grammar_that_exceeds_its_limits_on_the_way_fails_its_request_alone(word: str) -> None:
    harness = Harness()
    bad, good = harness.add(word), harness.add("plums")
    harness.run()
    end = harness.end(bad)
    assert isinstance(end, Failure)
    assert isinstance(end.error, InvalidConstraint)
    assert harness.text(good) == "plums"


def test_a_prompt_that_can_never_fit_is_refused_before_its_grammar_is_compiled() -> None:
    harness = Harness()
    harness.compiler.hold = True
    with pytest.raises(PromptTooLong):
        harness.engine.add(as_ids(b"x" * PAGES * 4), SamplingParams(constraint=Choice(("fig",))), seed=0)
    assert not harness.engine.busy


def test_a_preempted_request_resumes_in_its_grammar() -> None:
    harness = Harness()
    request = harness.add("strawberries and cream")
    for _ in range(6):
        harness.events += harness.engine.step()
    (running,) = harness.engine.scheduler.running
    harness.engine.scheduler.preempt(running)
    harness.run()
    assert harness.engine.scheduler.counters.preemptions == 1
    assert harness.text(request) == "strawberries and cream"


def test_a_constraint_holds_for_what_comes_behind_a_prompt_that_is_drawn_anew() -> None:
    harness = Harness()
    constraint = Choice(("plum", "fig", "k"))
    params = SamplingParams(constraint=constraint, max_tokens=4)
    requests = [harness.engine.add(as_ids(b"ask"), params, seed=seed, heals=True) for seed in range(20)]
    harness.run()
    outputs = set()
    for request in requests:
        end = harness.end(request)
        assert isinstance(end, Completion)
        assert (end.healed, end.usage.prompt_tokens, end.end.reason) == (1, 2, "stop")
        outputs.add(bytes(end.output[: end.end.kept].tolist()))
    assert outputs == {b"kplum", b"kfig", b"kk"}
    texts = {bytes(e.text) for e in harness.events if isinstance(e, Progress)}
    assert b"" in texts, "the prompt's part is not shown"
