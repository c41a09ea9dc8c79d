"""Programs written with `async def`: awaited values, streams, forks, batches, and runs that are cancelled."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import radixrt as rx
from radixrt.errors import InvalidRequest, PromptTooLong, UnknownVariable
from radixrt.lang import AsyncProgramState, ProgramState
from tests.lang.scripted import Reply, Scripted


@rx.function
async def dialogue(s: AsyncProgramState, topic: str) -> str:
    s += rx.user("About " + topic)
    with s.assistant():
        first: str = await s.gen("first", stop="\n")
        s += " (" + first + ") "
        second = s.gen("second")
    return first + "|" + await second


async def test_a_value_is_awaited_and_the_program_goes_on(backend: Scripted) -> None:
    state = await dialogue("rain", temperature=0)
    assert state.ret_value == "r0|r1"
    assert state["first"] == "r0"
    assert state.text().endswith("[assistant]r0 (r0) r1[/assistant]\n")
    assert state.messages()[-1] == {"role": "assistant", "content": "r0 (r0) r1"}
    assert [node.sampling.temperature for node in backend.nodes if node.sampling] == [0, 0]


def test_outside_an_event_loop_it_is_run_as_any_program(backend: Scripted) -> None:
    assert dialogue.run("rain")["second"] == "r1"
    assert [state["first"] for state in dialogue.run_batch([("a",), ("b",)])] == ["r0", "r0"]
    assert [state["first"] for state in dialogue.run_batch([("a",)], generator_style=True)] == ["r0"]


async def test_inside_an_event_loop_what_would_stop_it_is_refused(backend: Scripted) -> None:
    with pytest.raises(InvalidRequest, match="run_async"):
        dialogue.run("rain")
    with pytest.raises(InvalidRequest, match="run_batch_async"):
        dialogue.run_batch([("rain",)])
    assert backend.opened == 0


@pytest.mark.parametrize("read", ["item", "get", "scope", "pieces"])
async def test_reading_what_is_not_generated_yet_is_refused_in_the_body(
    unhurried: None, backend: Scripted, read: str
) -> None:
    """It would stop the event loop that the generation's end has to come through."""

    @rx.function
    async def program(s: AsyncProgramState) -> Any:
        with s.var_scope("scope"):
            pending = s.gen("x")
        if read == "get":
            return pending.get()
        if read == "pieces":
            return list(pending)
        return s["x" if read == "item" else "scope"]

    instead = "async for" if read == "pieces" else r"await s.get\('x'\)"
    with pytest.raises(InvalidRequest, match=instead):
        await program()


async def test_what_is_generated_may_be_read_at_once(backend: Scripted) -> None:
    @rx.function
    async def program(s: AsyncProgramState) -> Any:
        with s.var_scope("scope"):
            s += "<" + rx.gen("x") + ">"
        await s.sync()
        s["mine"] = 3
        return s["x"], s["scope"], s["mine"], await s.get("mine"), await s.get("scope"), await s.text()

    assert (await program()).ret_value == ("r0", "<r0>", 3, 3, "<r0>", "<r0>")


async def test_an_unknown_variable_and_a_failure_are_raised_by_those_who_await(backend: Scripted) -> None:
    backend.script = lambda prompt, node: Reply(["par"], error=PromptTooLong("too long", field="prompt"))

    @rx.function
    async def program(s: AsyncProgramState) -> Any:
        with pytest.raises(UnknownVariable):
            await s.get("nothing")
        assert await s.get_meta_info("nothing") is None
        x = s.gen("x")
        for reading in (x, s.get("x"), s.text(), s.get_meta_info("x")):
            with pytest.raises(rx.GenerationFailed, match="too long") as failed:
                await reading
            assert isinstance(failed.value.__cause__, PromptTooLong)
            assert failed.value.node == "x"
        with pytest.raises(rx.GenerationFailed):
            _ = [piece async for piece in x]
        return await s.error()

    assert isinstance((await program()).ret_value, rx.GenerationFailed)


async def test_pieces_are_read_as_they_come() -> None:
    backend = Scripted(lambda prompt, node: Reply(["one ", "two ", "three"], delay=0.02))

    @rx.function
    async def program(s: AsyncProgramState) -> Any:
        s += "Count: "
        pieces = [piece async for piece in s.gen("x")]
        named = [piece async for piece in s.text_async_iter("x")]
        return pieces, named, [piece async for piece in s.text_async_iter()]

    pieces, named, whole = (await program.run_async(backend=backend)).ret_value
    assert len(pieces) > 1
    assert "".join(pieces) == "one two three" == "".join(named)
    assert "".join(whole) == "Count: one two three"


async def test_a_variable_that_is_made_of_generations_is_read_when_they_have_ended() -> None:
    backend = Scripted(lambda prompt, node: Reply(["<think>hm", "</think>", "yes"], delay=0.01))

    @rx.function
    async def program(s: AsyncProgramState) -> list[str]:
        with s.var_scope("scope"):
            s += "Is it? " + rx.separate_reasoning(rx.gen("answer"), "qwen3")
        names = ("scope", "answer", "answer_reasoning_content")
        return ["".join([piece async for piece in s.text_async_iter(name)]) for name in names]

    assert (await program(backend=backend)).ret_value == ["Is it? <think>hm</think>yes", "yes", "hm"]


async def test_a_select_is_awaited_too(backend: Scripted) -> None:
    backend.logprobs = lambda prompt, option: [-0.1 if option == "no" else -2.0] * len(option)

    @rx.function
    async def program(s: AsyncProgramState) -> str:
        return await s.select("answer", ["yes", "no"])

    state = await program()
    assert state.ret_value == state["answer"] == "no"


async def test_forks_and_copies_are_joined(backend: Scripted) -> None:
    @rx.function
    async def program(s: AsyncProgramState) -> Any:
        forks = s.fork(3)
        forks += lambda index: f"{index}:" + rx.gen("x")
        seen = await asyncio.gather(*(branch.get("x") for branch in forks))
        await forks.join()
        async with s.copy() as other:
            other += rx.gen("y")
        more = s.fork(2)
        more += rx.gen("z")
        await more.join("concate_and_append")
        return seen, s["x"], s["y"], await s.text()

    seen, joined, copied, text = (await program()).ret_value
    assert seen == joined
    assert len(joined) == 3
    assert len(copied) == 1
    assert text.startswith("r")


async def test_a_join_raises_the_failures_of_its_branches(backend: Scripted) -> None:
    def script(prompt: str, node: Any) -> Reply | str:
        return Reply([], error=PromptTooLong("too long")) if prompt.startswith("1") else "fine"

    backend.script = script

    @rx.function
    async def program(s: AsyncProgramState) -> Any:
        forks = s.fork(3)
        forks += lambda index: f"{index}:" + rx.gen("x")
        with pytest.raises(rx.JoinFailed) as failed:
            await forks.join()
        assert [error.branch for error in failed.value.exceptions] == ["fork 1 of 3"]
        return await forks[0].get("x"), await forks[2].get("x")

    assert (await program()).ret_value == ("fine", "fine")


async def test_a_program_inside_a_program_runs_on_the_caller_s_backend(backend: Scripted) -> None:
    other = Scripted(lambda prompt, node: "other")

    @rx.function
    def plain(s: ProgramState) -> str:
        s += rx.gen("x")
        return s["x"]

    @rx.function
    async def inner(s: AsyncProgramState) -> str:
        return await s.gen("x")

    @rx.function
    async def outer(s: AsyncProgramState) -> Any:
        return (await inner()).ret_value, (await plain.run_async()).ret_value

    assert (await outer.run_async(backend=other)).ret_value == ("other", "other")
    assert (await plain.run_async()).ret_value == "r0"


async def test_ten_thousand_runs_at_once_take_no_threads() -> None:
    runs = 10_000
    all_are_open = threading.Event()
    backend = Scripted(lambda prompt, node: Reply([prompt], until=all_are_open))

    @rx.function
    async def program(s: AsyncProgramState, number: int) -> str:
        s += f"{number}"
        return await s.gen("x")

    threads = threading.active_count()
    batch = asyncio.create_task(program.run_batch_async([(number,) for number in range(runs)], backend=backend))
    while backend.opened < runs and not batch.done():
        await asyncio.sleep(0.01)
    assert threading.active_count() <= threads + 1
    all_are_open.set()
    assert [state.ret_value for state in await batch] == [str(number) for number in range(runs)]
    backend.settle()
    assert backend.opened == backend.closed == runs
    assert backend.most_open == runs


async def test_a_batch_runs_so_many_at_once_and_ends_with_the_first_error(backend: Scripted) -> None:
    backend.script = lambda prompt, node: Reply(["x"], delay=0.005)
    running: list[int] = []
    most = 0

    @rx.function
    async def program(s: AsyncProgramState, number: int) -> int:
        nonlocal most
        running.append(number)
        most = max(most, len(running))
        await s.gen("x")
        running.remove(number)
        if number == 30:
            raise LookupError("thirty")
        return number

    states = await program.run_batch_async([(number,) for number in range(30)], num_threads=4)
    assert [state.ret_value for state in states] == list(range(30))
    assert most == 4
    with pytest.raises(LookupError, match="thirty"):
        await program.run_batch_async([(number,) for number in range(28, 90)], num_threads=4)
    backend.settle()
    assert backend.opened == backend.closed


@pytest.mark.parametrize("written", ["async def", "def"])
async def test_to_cancel_a_run_is_to_free_what_it_generates(written: str) -> None:
    never = threading.Event()
    backend = Scripted(lambda prompt, node: Reply(["x"], until=never))
    asked = threading.Event()

    @rx.function
    async def coroutine(s: AsyncProgramState) -> str:
        pending = s.gen("x")
        asked.set()
        return await pending

    @rx.function
    def plain(s: ProgramState) -> str:
        s += rx.gen("x")
        asked.set()
        return s["x"]

    program = coroutine if written == "async def" else plain
    task = asyncio.create_task(program.run_async(backend=backend))
    while not asked.is_set():
        await asyncio.sleep(0.001)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    for _ in range(1000):
        if backend.opened == backend.closed == 1:
            break
        await asyncio.sleep(0.005)
    assert backend.opened == backend.closed <= 1


async def test_a_stream_runs_beside_its_reader_in_the_same_loop() -> None:
    backend = Scripted(lambda prompt, node: Reply(["a", "b", "c"], delay=0.01))
    threads = threading.active_count()
    state = dialogue.run("rain", stream=True, backend=backend)
    text = "".join([piece async for piece in state.text_async_iter()])
    assert threading.active_count() <= threads + 1
    assert text == state.text()
    assert state["second"] == "abc"
    assert state.ret_value == "abc|abc"


@pytest.mark.parametrize(
    "read",
    [
        lambda state: state["first"],
        lambda state: state.get_meta_info("first"),
        lambda state: state.text(),
        lambda state: state.messages(),
        lambda state: state.error(),
        lambda state: state.ret_value,
        lambda state: list(state.text_iter()),
        lambda state: list(state.text_iter("second")),
    ],
)
async def test_a_stream_that_its_own_loop_would_wait_for_is_refused(read: Any, backend: Scripted) -> None:
    """The body could not go on meanwhile, so it would wait for ever."""
    state = dialogue.run("rain", stream=True)
    with pytest.raises(InvalidRequest, match="text_async_iter"):
        read(state)
    _ = [piece async for piece in state.text_async_iter()]
    read(state)


async def test_what_the_body_raises_is_raised_by_readers_of_a_stream(backend: Scripted) -> None:
    @rx.function
    async def program(s: AsyncProgramState) -> None:
        s += "before"
        raise LookupError("gone")

    state = program.run(stream=True)
    with pytest.raises(LookupError, match="gone"):
        _ = [piece async for piece in state.text_async_iter()]


@pytest.mark.parametrize(("timeout", "told"), [(0.05, rx.DeadlineExceeded), (None, rx.Aborted)])
async def test_the_end_of_a_body_is_no_cancellation_of_its_readers(
    timeout: float | None, told: type[Exception], backend: Scripted
) -> None:
    @rx.function
    async def program(s: AsyncProgramState) -> None:
        s += "begun"
        if timeout is None:
            raise asyncio.CancelledError
        await asyncio.sleep(60)

    state = program.run(stream=True, timeout=timeout)
    pieces = []
    with pytest.raises(told):
        async for piece in state.text_async_iter():
            pieces.append(piece)
    assert pieces == ["begun"]
    assert isinstance(state.error(), told)
