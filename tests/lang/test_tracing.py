"""Traces: a program's tree before anything is generated, and the constants that all its runs begin with."""

from __future__ import annotations

import asyncio
import gc
import xml.dom.minidom
from typing import Any

import pytest

import radixrt as rx
from radixrt.client.backend import EVERYTHING, Capabilities
from radixrt.errors import InvalidRequest, NotSupported
from radixrt.lang import AsyncProgramState, ProgramState
from radixrt.lang.expressions import Constant, RoleEdge
from tests.lang.scripted import Scripted


@rx.function
def guide(s: ProgramState, town: str, day: str = "Monday") -> None:
    s += rx.system("Be brief.")
    s += rx.user(f"What is there to see in {town} on {day}?")
    forks = s.fork(2)
    forks += rx.assistant("Well: " + rx.gen("tip", stop="\n", max_tokens=9))
    forks.join()
    s += "Then " + town + ": " + rx.select("mood", ["glad", "sad"])
    if s["mood"] == "glad":
        s += "never drawn"


def test_a_trace_draws_the_tree_and_says_where_it_stopped(backend: Scripted) -> None:
    """Joins go on: what they gather is read by nobody yet."""
    assert str(guide.trace(day="Sunday")).splitlines() == [
        "guide, as far as it is known",
        "├── role  system begins",
        '├── text  "Be brief."',
        "├── role  system ends",
        "├── role  user begins",
        '├── text  "What is there to see in {town} on Sunday?"',
        "├── role  user ends",
        "├── fork  2 branches",
        "│   ├── branch 0",
        "│   │   ├── role  assistant begins",
        '│   │   ├── text  "Well: "',
        '│   │   ├── gen tip  up to 9 tokens, stops at "\\n"',
        "│   │   └── role  assistant ends",
        "│   └── branch 1",
        "│       ├── role  assistant begins",
        '│       ├── text  "Well: "',
        '│       ├── gen tip  up to 9 tokens, stops at "\\n"',
        "│       └── role  assistant ends",
        "├── join  gather_variable",
        '├── text  "Then {town}: "',
        "└── select mood",
        '    ├── option  "glad"',
        '    └── option  "sad"',
        "stopped: main: the program reads mood, which only a run generates",
    ]
    assert backend.opened == 0


def test_a_trace_to_the_end_is_complete() -> None:
    @rx.function
    def program(s: ProgramState, words: list[str]) -> None:
        s += ", ".join(words) + rx.gen("x", regex="a+", n=2)
        s.sync()

    trace = program.bind(words=["a", "b"]).trace(max_tokens=7)
    assert trace.stopped is None
    assert str(trace).splitlines()[1:] == [
        '├── text  "a, b"',
        "└── gen x  up to 7 tokens, 2 choices, regex",
        "complete",
    ]


@pytest.mark.parametrize(
    "look",
    [
        lambda x: list(range(x)),
        lambda x: len(x),
        lambda x: [*x],
        lambda x: x == "a",
        lambda x: bool(x),
        lambda x: x[0],
        lambda x: x.name,
        lambda x: "a" in x,
        lambda x: x > 3,
        lambda x: x * 2,
        lambda x: x.startswith("a"),
        lambda x: x.lower() == "a",
        lambda x: x.isdigit(),
        lambda x: x.split(),
        lambda x: x.encode(),
    ],
)
def test_looking_into_a_marked_argument_stops_the_trace(look: Any) -> None:
    @rx.function
    def program(s: ProgramState, x: Any) -> None:
        s += "before"
        try:
            look(x)
        except Exception:
            s += "swallowed"
        s += "after"

    trace = program.trace()
    assert trace.stopped == "the program looks into its argument {x}"
    assert str(trace).splitlines()[1] == '└── text  "before"'


@pytest.mark.parametrize(
    "text",
    [
        lambda x: f"<{x}>",
        lambda x: "<" + x + ">",
        lambda x: "<%s>" % x,  # noqa: UP031
        lambda x: "<{}>".format(x),  # noqa: UP032
        lambda x: "".join(["<", x, ">"]),
        lambda x: x.join("<>"),
    ],
)
def test_marked_arguments_stand_in_texts_by_their_names(text: Any) -> None:
    @rx.function
    def program(s: ProgramState, x: Any) -> None:
        s += text(x)
        s += rx.user(text(x)) + text(x)

    trace = program.trace()
    assert trace.stopped is None
    assert str(trace).count('"<{x}>"') == 3


@pytest.mark.parametrize(
    "read",
    [
        lambda s: s["x"],
        lambda s: s.text(),
        lambda s: s.messages(),
        lambda s: list(s.text_iter()),
        lambda s: list(s.text_iter("x")),
        lambda s: s.get_meta_info("x"),
        lambda s: s["scope"],
        lambda s: s["joined"],
        lambda s: str(s),
    ],
)
def test_every_way_to_read_stops_the_trace(read: Any) -> None:
    @rx.function
    def program(s: ProgramState) -> None:
        with s.var_scope("scope"):
            s += rx.user(rx.gen("x"))
        forks = s.fork(2)
        forks += rx.gen("joined")
        forks.join()
        read(s)
        s += "after"

    trace = program.trace()
    assert trace.stopped is not None
    assert "after" not in str(trace)


def test_a_coroutine_is_traced_too() -> None:
    @rx.function
    async def program(s: AsyncProgramState, town: str) -> None:
        s += town
        forks = s.fork(2)
        forks += rx.gen("y")
        await forks.join()
        await s.gen("x", schema=int)

    trace = program.trace()
    assert trace.stopped == "main: the program reads x, which only a run generates"
    assert "gen x  up to 128 tokens, json_schema" in str(trace)


async def test_a_coroutine_is_traced_where_an_event_loop_runs_too(backend: Scripted) -> None:
    backend.capabilities = Capabilities(caches_prefixes=True)

    @rx.function
    async def program(s: AsyncProgramState, town: str) -> None:
        s += "Before " + town
        await asyncio.sleep(0)
        s += "after" + rx.gen("x")

    trace = program.trace()
    assert trace.stopped is None
    assert '"Before {town}after"' in str(trace)
    assert program.cache() == len("Before ")


def test_what_the_body_raises_is_told() -> None:
    @rx.function
    def program(s: ProgramState) -> None:
        s += "before"
        raise LookupError("nowhere")

    assert program.trace().stopped == "the program raised LookupError: nowhere"
    with pytest.raises(TypeError):
        program.trace(nothing=3)
    with pytest.raises(InvalidRequest, match="backend"):
        program.trace(backend="http://127.0.0.1:30000")  # type: ignore[arg-type]


def test_a_backend_says_what_roles_look_like_and_what_it_cannot_do(backend: Scripted) -> None:
    limited = Scripted(capabilities=Capabilities(select=False))
    assert NotSupported.__name__ in str(guide.trace(backend=limited))
    assert backend.opened == limited.opened == 0


def test_a_drawing_is_an_svg_document() -> None:
    svg = guide.trace().svg()
    document = xml.dom.minidom.parseString(svg)
    assert document.documentElement.tagName == "svg"
    assert "{town}" in svg


def test_the_prefix_is_what_every_run_begins_with() -> None:
    assert guide.trace().prefix() == (
        RoleEdge("system", "begin"),
        Constant("Be brief."),
        RoleEdge("system", "end"),
        RoleEdge("user", "begin"),
        Constant("What is there to see in "),
    )


def test_cache_computes_the_prefix_once(backend: Scripted) -> None:
    """Defaults count as unknown: other runs may be given something else."""
    backend.capabilities = Capabilities(caches_prefixes=True)

    @rx.function
    def program(s: ProgramState, a: str, b: str = "default") -> None:
        s += "constant text, " + b + a + rx.gen("x")

    assert program.cache() == len("constant text, ")
    assert [node.segments[0].text for node in backend.nodes] == ["constant text, "]
    assert program.bind(b="bound ").cache() == len("constant text, bound ")

    @rx.function
    def nothing(s: ProgramState, a: str) -> None:
        s += a

    assert nothing.cache() == 0
    backend.settle()
    assert backend.opened == backend.closed == 2


def test_a_batch_computes_what_its_runs_share_before_any_of_them(backend: Scripted) -> None:
    """Once; the runs' own requests come behind it, those that start later at once."""
    caching = Scripted(capabilities=Capabilities(caches_prefixes=True))
    shots = "A worked example of some length. " * 10

    @rx.function
    def program(s: ProgramState, question: str) -> None:
        s += rx.system("Be brief.")
        s += rx.user(shots + "Question: " + question)
        s += rx.assistant(rx.gen("x"))

    states = program.run_batch([(f"{n}?",) for n in range(20)], backend=caching, num_threads=8)
    assert all(state["x"] for state in states)
    first, *others = caching.submitted
    assert [segment for node in first for segment in node.segments][-1].text == shots + "Question: "
    assert first[0].sampling.max_tokens == 1
    assert len(others) >= 20
    assert all(len(batch[0].segments) > len(first[0].segments) for batch in others)
    caching.settle()
    assert caching.opened == caching.closed == 21
    program.run_batch([(f"{n}?",) for n in range(20)], backend=backend)
    assert backend.opened == 20, "a backend that keeps no prefixes is not asked for one"


@pytest.mark.parametrize("shared", ["short. ", ""])
def test_a_batch_that_shares_little_asks_nothing_more(shared: str) -> None:
    caching = Scripted(capabilities=Capabilities(caches_prefixes=True))

    @rx.function
    def program(s: ProgramState, question: str) -> None:
        s += shared + question + "x" * 500 + rx.gen("x")

    program.run_batch([(f"{n}?",) for n in range(10)], backend=caching)
    assert caching.opened == 10


def test_runs_that_ask_late_or_never_hold_nobody_up() -> None:
    caching = Scripted(capabilities=Capabilities(caches_prefixes=True))

    @rx.function
    def program(s: ProgramState, number: int) -> None:
        if number == 0:
            return
        if number == 1:
            raise LookupError("one")
        s += "constant " * 50 + f"{number}" + rx.gen("x")

    with pytest.raises(LookupError):
        program.run_batch([(n,) for n in range(6)], backend=caching)
    states = program.run_batch([(n,) for n in (0, 2, 3, 4)], backend=caching)
    assert [state.error() for state in states] == [None] * 4
    caching.settle()
    assert caching.opened == caching.closed


def test_a_prefix_that_fails_fails_nobody() -> None:
    def script(prompt: str, node: Any) -> Any:
        if node.sampling.max_tokens == 1:
            raise rx.PromptTooLong("too long")
        return "fine"

    caching = Scripted(script, capabilities=Capabilities(caches_prefixes=True))

    @rx.function
    def program(s: ProgramState, number: int) -> None:
        s += "constant " * 50 + f"{number}" + rx.gen("x")

    states = program.run_batch([(n,) for n in range(4)], backend=caching)
    assert [state["x"] for state in states] == ["fine"] * 4
    assert EVERYTHING.caches_prefixes is False


def test_a_prefix_that_cannot_be_sent_is_no_news_beside_what_the_runs_tell(caplog: pytest.LogCaptureFixture) -> None:
    caching = Scripted(capabilities=Capabilities(caches_prefixes=True))
    caching.submit_error = rx.WorkerUnavailable("gone")

    @rx.function
    def program(s: ProgramState, number: int) -> None:
        s += "constant " * 50 + f"{number}" + rx.gen("x")

    states = program.run_batch([(n,) for n in range(4)], backend=caching)
    assert [str(state.error().__cause__) for state in states] == ["gone"] * 4
    gc.collect()  # a task whose error nobody has seen complains when it goes
    caching.settle()
    assert caplog.text == ""
