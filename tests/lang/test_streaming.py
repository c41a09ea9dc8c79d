from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator

import pytest

from radixrt.errors import GenerationFailed, InvalidRequest, PromptTooLong, UnknownVariable
from radixrt.lang import ProgramState, function, gen
from radixrt.protocol.messages import TreeNode
from tests.lang.scripted import Reply, Scripted


@function
def play(s: ProgramState) -> str:
    s += "ANNA:" + gen("anna")
    s += "\nJON:" + gen("jon") + "\nEND"
    return "done"


WHOLE = "ANNA:abcdef\nJON:abcdef\nEND"


@pytest.fixture
def slow(backend: Scripted) -> Scripted:
    backend.script = lambda prompt, node: Reply(list("abcdef"), delay=0.003)
    return backend


async def collect(pieces: AsyncIterator[str]) -> list[str]:
    return [piece async for piece in pieces]


def test_pieces_come_while_the_program_runs_and_add_up_to_the_text(backend: Scripted) -> None:
    go = threading.Event()
    backend.script = lambda prompt, node: Reply(list("abcdef"), until=go if "JON" in prompt else None)
    s = play.run(stream=True)
    pieces = []
    for piece in s.text_iter():
        pieces.append(piece)
        if "".join(pieces).endswith("JON:"):
            go.set()  # the premise: this much was read before the second generation began
    assert "".join(pieces) == s.text() == WHOLE
    assert len(pieces) > 1


def test_a_slow_reader_loses_nothing(slow: Scripted) -> None:
    pieces = []
    for piece in play.run(stream=True).text_iter():
        pieces.append(piece)
        time.sleep(0.02)
    assert "".join(pieces) == WHOLE
    assert any(len(piece) > 1 for piece in pieces[1:])


def test_a_late_reader_gets_all_as_one_piece(slow: Scripted) -> None:
    s = play.run(stream=True)
    assert s.text() == WHOLE
    assert list(s.text_iter()) == [WHOLE]
    assert list(s.text_iter("jon")) == ["abcdef"]
    assert list(play.run().text_iter()) == [WHOLE]


def test_several_readers_each_get_all(slow: Scripted) -> None:
    s = play.run(stream=True)
    results: list[str] = []
    readers = [threading.Thread(target=lambda: results.append("".join(s.text_iter()))) for _ in range(5)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert results == [WHOLE] * 5


def test_a_variable_is_streamed_by_name(slow: Scripted) -> None:
    s = play.run(stream=True)
    pieces = list(s.text_iter("jon"))
    assert "".join(pieces) == s["jon"] == "abcdef"
    assert len(pieces) > 1
    assert s.ret_value == "done"


def test_coroutines_read_too_without_stopping_their_loop(slow: Scripted) -> None:
    async def both() -> tuple[list[str], list[str], int]:
        s = play.run(stream=True)
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.001)
                ticks += 1

        ticking = asyncio.create_task(tick())
        whole, jon = await asyncio.gather(collect(s.text_async_iter()), collect(s.text_async_iter(var_name="jon")))
        ticking.cancel()
        return whole, jon, ticks

    whole, jon, ticks = asyncio.run(both())
    assert "".join(whole) == WHOLE
    assert "".join(jon) == "abcdef"
    assert len(whole) > 2
    assert ticks > 3


def test_meta_data_comes_with_each_piece_of_a_variable(slow: Scripted) -> None:
    s = play.run(stream=True)
    pairs = list(s.text_iter("anna", return_meta_data=True))
    assert "".join(piece for piece, _ in pairs) == "abcdef"
    assert pairs[0][1]["finish_reason"] is None
    assert all(1 <= meta["completion_tokens"] <= 6 for _, meta in pairs)

    async def collect_pairs() -> list[tuple[str, dict[str, object]]]:
        return [pair async for pair in s.text_async_iter("jon", return_meta_data=True)]

    later = asyncio.run(collect_pairs())
    assert "".join(piece for piece, _ in later) == "abcdef"
    assert later[-1][1]["completion_tokens"] == 6
    with pytest.raises(InvalidRequest, match="var_name"):
        s.text_iter(None, return_meta_data=True)  # type: ignore[call-overload]


def test_an_unknown_variable_is_a_key_error_once_the_program_has_ended(slow: Scripted) -> None:
    s = play.run(stream=True)
    with pytest.raises(UnknownVariable):
        list(s.text_iter("nobody"))
    assert s.text() == WHOLE


def test_a_variable_that_is_no_single_text_is_not_streamed(backend: Scripted) -> None:
    @function
    def program(s: ProgramState) -> None:
        s["number"] = 3
        s["word"] = "assigned"
        s += gen("several", n=2)

    s = program.run()
    assert list(s.text_iter("word")) == ["assigned"]
    with pytest.raises(InvalidRequest, match="int"):
        list(s.text_iter("number"))
    with pytest.raises(InvalidRequest, match="2 choices"):
        list(s.text_iter("several"))


def test_a_failure_is_raised_after_the_text_before_it(backend: Scripted) -> None:
    def script(prompt: str, node: TreeNode) -> Reply:
        return Reply(["ab"], error=PromptTooLong("no more") if "JON" in prompt else None)

    backend.script = script
    s = play.run(stream=True)
    pieces = []
    with pytest.raises(GenerationFailed, match="jon: no more"):
        for piece in s.text_iter():
            pieces.append(piece)
    assert "".join(pieces) == "ANNA:ab\nJON:ab"
    assert s["anna"] == "ab"
    with pytest.raises(GenerationFailed):
        list(s.text_iter("jon"))
    assert isinstance(s.error(), GenerationFailed)


def test_what_the_body_raises_is_raised_by_those_who_read(backend: Scripted) -> None:
    @function
    def program(s: ProgramState) -> None:
        s += "before" + gen("x")
        s.sync()
        raise ZeroDivisionError("mine")

    s = program.run(stream=True)
    pieces = []
    with pytest.raises(ZeroDivisionError):
        for piece in s.text_iter():
            pieces.append(piece)
    assert "".join(pieces) == "beforer0"
    for read in (s.text, lambda: s["never set"], lambda: s.ret_value):
        with pytest.raises(ZeroDivisionError):
            read()
    assert s["x"] == "r0"
    assert isinstance(s.error(), ZeroDivisionError)


def test_inside_the_body_a_stream_ends_with_what_is_recorded(backend: Scripted) -> None:
    @function
    def program(s: ProgramState) -> str:
        s += "a" + gen("x")
        return "".join(s.text_iter()) + "".join(s.text_iter("x"))

    assert program.run().ret_value == "ar0r0"
