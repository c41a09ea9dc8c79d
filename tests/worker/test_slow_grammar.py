"""S07: a grammar that takes long to compile, by the real compiler in its threads, beside a real model."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import numpy as np
import pytest

from radixrt.config import WorkerConfig
from radixrt.errors import InvalidConstraint
from radixrt.protocol.constraint import JsonSchema
from radixrt.protocol.ids import as_ids
from radixrt.protocol.sampling import SamplingParams
from radixrt.worker.build import build_engine
from radixrt.worker.engine import Completion, Engine, EngineEvent, Failure, Progress

WORDS = [f"w{number:05d}" for number in range(20_000)]
PROMPT = as_ids(range(3, 40))


def constrained(words: list[str]) -> SamplingParams:
    return SamplingParams(max_tokens=40, constraint=JsonSchema(json.dumps({"enum": words})))


@pytest.fixture
def engine(tiny_llama: Path) -> Engine:
    config = WorkerConfig(model=str(tiny_llama), dtype="float32", kernels="reference")
    return build_engine(msgspec.structs.replace(config, kv_memory=2**24, threads=1))[0]


def of_request(events: list[EngineEvent], request: int) -> list[EngineEvent]:
    return [event for event in events if event.request == request]


ATTEMPTS = 8
"""A compilation takes some 70 ms: on a busy machine it may be over before others have had three tokens."""


def test_while_a_grammar_of_20000_strings_compiles_others_decode_and_whoever_wants_it_may_leave(engine: Engine) -> None:
    decoding = engine.add(PROMPT, SamplingParams(max_tokens=10**6, ignore_eos=True), seed=0)
    while not any(isinstance(event, Progress) for event in engine.step()):
        pass
    for attempt in range(ATTEMPTS):
        words = [f"{attempt}{word}" for word in WORDS]
        leaving, staying = (engine.add(PROMPT, constrained(words), seed=seed) for seed in (1, 2))
        invalid = engine.add(PROMPT, SamplingParams(constraint=JsonSchema('{"type": "text"}')), seed=3)
        events: list[EngineEvent] = []
        beside = 0
        while staying in engine.grammars:
            if beside == 2:
                assert engine.abort(leaving)
            told = engine.step()
            events += told
            beside += staying in engine.grammars and bool(of_request(told, decoding))
        while not any(isinstance(event, Completion) for event in of_request(events, staying)):
            events += engine.step()
        text = b"".join(event.text for event in of_request(events, staying) if isinstance(event, Progress))
        assert json.loads(text) in words
        (failure,) = of_request(events, invalid)
        assert isinstance(failure, Failure)
        assert isinstance(failure.error, InvalidConstraint)
        assert "text" in failure.error.message
        if beside > 2:
            break
        engine.abort(leaving)
    assert beside > 2, "nobody decoded while a grammar was being compiled"
    assert engine.aborts["awaiting grammar"] >= 1
    assert not of_request(events, leaving)
    assert engine.abort(decoding)
    assert not engine.busy
    assert engine.scheduler.cache.leases == engine.scheduler.cache.owned_pages == 0


def test_whoever_leaves_last_leaves_a_compilation_that_the_next_one_finds(engine: Engine) -> None:
    words = [word[::-1] for word in WORDS]
    first = engine.add(PROMPT, constrained(words), seed=0)
    assert engine.abort(first)
    assert engine.aborts == {"awaiting grammar": 1}
    assert not engine.busy
    second = engine.add(PROMPT, constrained(words), seed=0)
    events: list[EngineEvent] = []
    while engine.busy:
        events += engine.step()
    text = b"".join(event.text for event in events if isinstance(event, Progress))
    assert json.loads(text) in words
    assert isinstance(events[-1], Completion)
    assert events[-1].request == second


def test_text_under_a_grammar_of_20000_strings_is_one_of_them_each_time(engine: Engine) -> None:
    rng = np.random.default_rng(7)
    requests = [engine.add(as_ids(rng.integers(3, 500, 12)), constrained(WORDS), seed=seed) for seed in range(8)]
    events: list[EngineEvent] = []
    while engine.busy:
        events += engine.step()
    for request in requests:
        pieces = [event.text for event in of_request(events, request) if isinstance(event, Progress)]
        assert json.loads(b"".join(pieces)) in WORDS
