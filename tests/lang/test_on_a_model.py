"""The language on a real worker: typed values, coroutines, deadlines, cancelling, what batches share."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import pytest

import radixrt as rx
from radixrt.errors import Aborted, DeadlineExceeded, InvalidConstraint
from radixrt.lang import AsyncProgramState, ProgramState
from tests.support.processes import wait_until


@pytest.fixture(scope="module")
def runtime(tiny_llama: Path) -> Iterator[rx.Runtime]:
    with rx.Runtime(tiny_llama, kernels="reference", dtype="float32", kv_memory=2**23, threads=1) as runtime:
        yield runtime


@pytest.fixture(autouse=True)
def nothing_is_left(runtime: rx.Runtime) -> Iterator[None]:
    """Whatever a test ends, the runtime has freed: no request, no lease, no page that nobody holds."""
    runtime.flush_cache()
    yield
    wait_until(lambda: (stats := runtime.stats()).running == stats.waiting == stats.leases == stats.pages_owned == 0, 5)
    stats = runtime.stats()
    assert stats.pages_free + stats.pages_tree == runtime.info.pool_pages


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Boat:
    name: Literal["Constance", "Lark"]
    masts: int
    colour: Colour
    old: bool


@pytest.mark.parametrize("kind", [Boat, Colour, Literal["yes", "no"], bool, tuple[bool, Colour]])
def test_a_typed_value_is_an_instance_whatever_the_model_says(runtime: rx.Runtime, kind: Any) -> None:
    @rx.function
    def program(s: ProgramState) -> Any:
        forks = s.fork(4)
        forks += lambda index: f"{index}: " + rx.gen("x", schema=kind, max_tokens=400, seed=index, temperature=2.0)
        forks.join()
        return s["x"]

    values = program.run(backend=runtime).ret_value
    assert len(values) == 4
    for value in values:
        if kind is Boat:
            assert isinstance(value, Boat)
            assert isinstance(value.masts, int)
            assert isinstance(value.colour, Colour)
        elif kind is Colour:
            assert value in Colour


def test_a_schema_that_the_compiler_refuses_fails_its_own_reader_only(runtime: rx.Runtime) -> None:
    @rx.function
    def program(s: ProgramState) -> Any:
        forks = s.fork(2)
        forks[0] += rx.gen("x", json_schema={"type": "object", "properties": {"a": {"not": {"type": "null"}}}})
        forks[1] += rx.gen("x", max_tokens=2)
        with pytest.raises(rx.GenerationFailed, match="not") as refused:
            _ = forks[0]["x"]
        assert isinstance(refused.value.__cause__, InvalidConstraint)
        return forks[1]["x"]

    assert isinstance(program.run(backend=runtime).ret_value, str)


async def test_coroutines_share_a_worker(runtime: rx.Runtime) -> None:
    @rx.function
    async def program(s: AsyncProgramState, number: int) -> tuple[str, str]:
        s += "Once upon a time there were boats. " * 4 + f"{number} "
        first = await s.gen("first", max_tokens=4, temperature=0, ignore_eos=True)
        pieces = [piece async for piece in s.gen("second", max_tokens=6, temperature=0, ignore_eos=True)]
        return first, "".join(pieces)

    together = await program.run_batch_async([(number,) for number in range(40)], backend=runtime)
    alone = [await program(number, backend=runtime) for number in (0, 17, 39)]
    assert [together[number].ret_value for number in (0, 17, 39)] == [state.ret_value for state in alone]


ENDLESS = rx.gen("x", max_tokens=400, ignore_eos=True)


def test_a_deadline_frees_what_a_run_generates(runtime: rx.Runtime) -> None:
    @rx.function
    def program(s: ProgramState) -> None:
        s += "Count: "
        forks = s.fork(6)
        forks += ENDLESS
        forks.join()

    started = time.monotonic()
    with pytest.raises(DeadlineExceeded):
        program.run(backend=runtime, timeout=0.3)
    assert time.monotonic() - started < 5


def test_a_cancelled_branch_is_freed_while_its_siblings_go_on(runtime: rx.Runtime) -> None:
    @rx.function
    def program(s: ProgramState) -> str:
        s += "Count: "
        forks = s.fork(3)
        forks[0] += rx.gen("x", max_tokens=8, ignore_eos=True)
        forks[1] += ENDLESS
        forks[2] += ENDLESS
        winner: str = forks[0]["x"]
        for loser in forks[1:]:
            loser.cancel()
            with pytest.raises(rx.GenerationFailed) as failed:
                _ = loser["x"]
            assert isinstance(failed.value.__cause__, Aborted)
        return winner

    assert program.run(backend=runtime).ret_value
    assert sum(runtime.stats().aborts.values()) >= 2


async def test_a_cancelled_coroutine_frees_its_run(runtime: rx.Runtime) -> None:
    @rx.function
    async def program(s: AsyncProgramState) -> None:
        forks = s.fork(4)
        forks += ENDLESS
        await forks.join()

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(program.run_async(backend=runtime), 0.3)


def test_what_a_batch_shares_is_computed_once_and_first(runtime: rx.Runtime) -> None:
    """With a row more, that of the token generated behind it."""
    shots = "Question: what floats? Answer: a boat. " * 20

    @rx.function
    def program(s: ProgramState, question: str) -> None:
        s += shots + question + rx.gen("x", max_tokens=2, temperature=0, ignore_eos=True)

    before = runtime.stats().tokens_computed
    states = program.run_batch([(f"{number}, why?",) for number in range(12)], backend=runtime)
    metas = [state.get_meta_info("x") for state in states]
    prompt = metas[0]["prompt_tokens"]
    shared = min(meta["cached_tokens"] for meta in metas)
    assert shared > 0.9 * prompt
    own = sum(meta["prompt_tokens"] - shared + meta["completion_tokens"] for meta in metas)
    assert runtime.stats().tokens_computed - before <= shared + own + 16


def test_cache_computes_the_constants_before_a_run(runtime: rx.Runtime) -> None:
    @rx.function
    def program(s: ProgramState, question: str) -> None:
        s += rx.system("Answer briefly, in words that a child would know.")
        s += rx.user("My question is this: " + question)
        s += rx.assistant(rx.gen("x", max_tokens=2))

    tokens = program.cache(runtime)
    meta = program.run("why?", backend=runtime).get_meta_info("x")
    assert tokens > 20
    assert meta["cached_tokens"] >= tokens - 4, "the prefix ends in mid text, where the next tokens may join its last"
