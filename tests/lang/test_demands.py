"""What a backend says it cannot do is refused where a program appends it, and only there."""

from dataclasses import replace

import pytest

import radixrt as rx
from radixrt.client.backend import EVERYTHING
from tests.lang.scripted import Scripted

LIMITED = [
    ("top_k", replace(EVERYTHING, options=EVERYTHING.options - {"top_k"}), rx.gen("x", top_k=3)),
    ("regex", replace(EVERYTHING, constraints=frozenset({"json_schema"})), rx.gen("x", regex="a+")),
    ("choices", replace(EVERYTHING, select=False), rx.select("x", ["a", "b"])),
    ("raw", replace(EVERYTHING, raw=False), rx.raw("<|im_start|>")),
    ("role", replace(EVERYTHING, roles=frozenset({"user"})), rx.system("Hello")),
    ("role", replace(EVERYTHING, only_in_turns=True), rx.gen("x")),
    ("role", replace(EVERYTHING, only_in_turns=True), rx.user(rx.gen("x"))),
    ("role", replace(EVERYTHING, continues_turns=False), rx.assistant("Well, " + rx.gen("x"))),
]


@pytest.mark.parametrize(("field", "able", "expression"), LIMITED)
def test_what_a_backend_cannot_do_is_refused_where_it_is_appended(field, able, expression):
    """The rest of the program, and other runs, go on."""
    backend = Scripted(capabilities=able)
    reached = []

    @rx.function
    def program(s):
        reached.append("before")
        s += expression
        reached.append("behind")

    with pytest.raises(rx.NotSupported, match="scripted") as refused:
        program.run(backend=backend)
    assert refused.value.field == field
    assert reached == ["before"]
    program.run(backend=Scripted())
    assert reached == ["before", "before", "behind"]


def test_a_fork_is_no_text():
    """A turn that was forked at its beginning has none yet."""

    @rx.function
    def program(s):
        s += rx.assistant_begin()
        for branch in s.fork(2):
            branch += rx.gen("x") + rx.assistant_end()

    program.run(backend=Scripted(capabilities=replace(EVERYTHING, continues_turns=False)))


def test_what_it_can_do_is_let_through():
    """A parameter at its default asks for nothing, and the first text of a turn continues nothing."""
    able = replace(EVERYTHING, options=frozenset({"max_tokens"}), only_in_turns=True, continues_turns=False)

    @rx.function
    def program(s):
        s += rx.user("Hello") + rx.assistant(rx.gen("x", max_tokens=3, top_p=1.0))

    assert program.run(backend=Scripted(capabilities=able))["x"] == "r0"
