"""What programs say to their backend besides what is to be generated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from radixrt.errors import InvalidRequest, NotSupported
from radixrt.lang import flush_cache, function, get_server_info, set_default_backend
from radixrt.lang.state import ProgramState
from radixrt.protocol.messages import Stats
from tests.lang.scripted import Scripted

COUNTERS = Stats(3, 0, 0, 0, 0, 0, 7, 100, 50, 20, 0, 0, 0, 0, {}, 0)


class Administered(Scripted):
    flushes = 0

    def flush_cache(self) -> Stats:
        self.flushes += 1
        return COUNTERS

    def get_server_info(self) -> dict[str, Any]:
        return {"flushes": self.flushes}


@pytest.fixture
def other() -> Administered:
    return Administered()


def test_the_cache_of_the_default_backend_or_of_the_one_given_is_flushed(other: Administered) -> None:
    default = Administered()
    set_default_backend(default)
    try:
        assert flush_cache()["tokens_computed"] == 100
        assert (get_server_info(), get_server_info(other)) == ({"flushes": 1}, {"flushes": 0})
        flush_cache(other)
        assert (default.flushes, other.flushes) == (1, 1)
    finally:
        set_default_backend(None)


def test_inside_a_program_it_is_that_of_the_program(other: Administered, backend: Scripted) -> None:
    @function
    def program(s: ProgramState) -> None:
        flush_cache()

    program.run(backend=other)
    assert other.flushes == 1


@pytest.mark.parametrize("ask", [flush_cache, get_server_info])
def test_a_backend_without_a_cache_of_its_own_says_so(ask: Callable[..., object], backend: Scripted) -> None:
    with pytest.raises(NotSupported) as caught:
        ask()
    assert caught.value.field == "backend"
    set_default_backend(None)
    with pytest.raises(InvalidRequest, match="no backend"):
        ask()


def test_role_text_is_asked_for_when_it_is_read_and_once(backend: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def role_text(previous: object, role: str, edge: str) -> Callable[[], str]:
        def ask() -> str:
            asked.append(edge)
            return f"<{role} {edge}>"

        return ask

    monkeypatch.setattr(backend, "role_text", role_text)

    @function
    def program(s: ProgramState) -> None:
        s.user("Hi")

    state = program.run()
    assert state.messages() == [{"role": "user", "content": "Hi"}]
    assert asked == []
    assert state.text() == state.text() == "<user begin>Hi<user end>"
    assert asked == ["begin", "end"]
