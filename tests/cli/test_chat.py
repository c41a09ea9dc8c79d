"""Conversations: what a turn computes, what a stopped answer leaves behind, and the terminal around them."""

from __future__ import annotations

import itertools
import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import radixrt as rx
from radixrt.cli.dialogue import Dialogue
from radixrt.client.generation import checked_params
from radixrt.client.runtime import Runtime
from radixrt.errors import PromptTooLong
from radixrt.lang.roles import turn

CHAT = [sys.executable, "-m", "radixrt", "chat", "--temperature", "0", "--dtype", "float32"]


@pytest.fixture(scope="module")
def runtime(tiny_llama: Path) -> Iterator[Runtime]:
    with Runtime(tiny_llama, dtype="float32", threads=1) as runtime:
        yield runtime


def dialogue(runtime: Runtime, system: str | None = "Be brief.", **sampling: Any) -> Dialogue:
    params = {"temperature": 0, "max_tokens": 12, "ignore_eos": True, **sampling}
    return Dialogue(runtime, checked_params(params), system)


def answer(talk: Dialogue, question: str) -> str:
    return "".join(talk.ask(question))


@rx.function
def conversation(s: rx.ProgramState, turns: list[tuple[str, str | None]]) -> None:
    """The turns as a program; those without a content are generated, as "0", "1", ..."""
    generated = 0
    for role, content in turns:
        if content is None:
            s += rx.assistant(rx.gen(str(generated), max_tokens=12, temperature=0, ignore_eos=True))
            generated += 1
        else:
            s += turn(role, content)


def test_a_turn_answers_all_that_was_said_and_computes_only_what_is_new(runtime: Runtime) -> None:
    talk = dialogue(runtime)
    first = answer(talk, "What is a tide?")
    assert talk.last is not None
    said = talk.last.usage.prompt_tokens + talk.last.usage.completion_tokens
    second = answer(talk, "Why?")
    assert talk.last.usage.cached_tokens >= said - 1
    turns = [("system", "Be brief."), ("user", "What is a tide?"), ("assistant", None), ("user", "Why?")]
    state = conversation.run([*turns, ("assistant", None)], backend=runtime)
    assert [first, second] == [state["0"], state["1"]]
    talk.close()


def test_an_answer_that_was_stopped_is_part_of_the_past_as_far_as_it_came(runtime: Runtime) -> None:
    talk = dialogue(runtime, max_tokens=1900)
    with closing(talk.ask("Tell me a story.")) as pieces:
        beginning = next(pieces) + next(pieces)
    assert talk.last is None
    deadline = time.monotonic() + 30
    while runtime.stats().running and time.monotonic() < deadline:
        time.sleep(0.01)
    assert runtime.stats().running == 0
    with closing(talk.ask("And then?")) as pieces:
        second = "".join(itertools.islice(pieces, 3))
    turns = [("system", "Be brief."), ("user", "Tell me a story."), ("assistant", beginning), ("user", "And then?")]
    state = conversation.run([*turns, ("assistant", None)], backend=runtime)
    assert state["0"].startswith(second)
    talk.close()


def test_a_question_that_is_refused_is_forgotten(runtime: Runtime) -> None:
    talk = dialogue(runtime, system=None)
    first = answer(talk, "What is a tide?")
    with pytest.raises(PromptTooLong):
        answer(talk, "boat " * 3000)
    second = answer(talk, "Why?")
    turns = [("user", "What is a tide?"), ("assistant", None), ("user", "Why?"), ("assistant", None)]
    state = conversation.run(turns, backend=runtime)
    assert [first, second] == [state["0"], state["1"]]
    talk.close()


def test_lines_that_are_piped_in_are_answered_one_by_one(tiny_llama: Path) -> None:
    lines = "What is a tide?\n\nWhy?\n/system\n/reset\nWhat is a tide?\n/exit\nnever asked\n"
    done = subprocess.run(
        [*CHAT, "--model", tiny_llama, "--max-tokens", "4", "--system", "Be brief.", "--stats"],
        input=lines.encode(),
        capture_output=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr.decode()
    printed = done.stdout.decode(errors="replace")
    stats = [line for line in printed.splitlines() if line.endswith(" s]")]
    assert len(stats) == 3
    prompt, reused = zip(*((int(line.split()[0][1:]), int(line.split()[3])) for line in stats), strict=True)
    assert prompt[1] > prompt[0] == prompt[2]
    assert reused[1] >= prompt[0]
    assert reused[2] == prompt[2] - 1
    assert "\nBe brief.\n" in printed
    assert "never asked" not in printed


def test_a_line_that_cannot_be_answered_is_told_and_the_others_are_answered(tiny_llama: Path) -> None:
    lines = "/dance\n" + "boat " * 3000 + "\nWhat is a tide?\n"
    done = subprocess.run(
        [*CHAT, "--model", tiny_llama, "--max-tokens", "4", "--stats"],
        input=lines.encode(),
        capture_output=True,
        timeout=120,
    )
    assert done.returncode == 1
    complaints = [line for line in done.stderr.decode().splitlines() if line.startswith("radixrt: ")]
    assert "no command /dance" in complaints[0]
    assert "/reset" in complaints[1]
    assert done.stdout.count(b"prompt tokens") == 1


def test_ctrl_c_stops_the_answer_and_ctrl_d_the_program(tiny_llama: Path) -> None:
    mine, theirs = pty.openpty()
    command = [*CHAT, "--model", str(tiny_llama), "--max-tokens", "1900"]
    chat = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True, preexec_fn=_own
    )
    os.close(theirs)
    try:
        shown = _read_until(mine, b"> ")
        assert b"loading" in shown or b"KV pool" in shown
        os.write(mine, b"Hello\n")
        _read_until(mine, b"Hello\r\n")
        _read_until(mine, b"]")  # well into an answer of 1,900 tokens
        os.write(mine, b"\x03")
        _read_until(mine, b"(stopped)")
        # A signal just before it waits for a key is noticed at the next one.
        while b"(Ctrl-D ends)" not in _read_for(mine, 0.5):
            os.write(mine, b"\x03")
        os.write(mine, b"\x04")
        assert chat.wait(30) == 0
    finally:
        chat.kill()
        chat.wait()
        os.close(mine)


def _own() -> None:
    """Make the terminal the child's own, so that Ctrl-C in it is a signal to the child."""
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _read_for(terminal: int, seconds: float) -> bytes:
    """What comes within so many seconds."""
    read = b""
    deadline = time.monotonic() + seconds
    while select.select([terminal], [], [], max(0, deadline - time.monotonic()))[0]:
        read += os.read(terminal, 4096)
    return read


def _read_until(terminal: int, end: bytes, seconds: float = 60) -> bytes:
    read = b""
    deadline = time.monotonic() + seconds
    while end not in read:
        ready, _, _ = select.select([terminal], [], [], max(0, deadline - time.monotonic()))
        assert ready, f"no {end!r} came; what came: {read!r}"
        read += os.read(terminal, 4096)
    return read
