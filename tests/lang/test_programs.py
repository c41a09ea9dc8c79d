"""What a program's text, variables, turns and errors are."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import radixrt
from radixrt.errors import Aborted, GenerationFailed, InvalidRequest, PromptTooLong, UnknownVariable
from radixrt.lang import (
    ProgramState,
    assistant,
    assistant_begin,
    assistant_end,
    function,
    gen,
    raw,
    select,
    set_default_backend,
    system,
    user,
)
from radixrt.lang.results import Generation
from radixrt.protocol.events import Finished, Piece, TokenLogprob, Usage
from radixrt.protocol.segments import Raw, Role, Text
from tests.lang.scripted import Reply, Scripted, ids_of


def test_text_is_constants_and_what_was_generated(backend: Scripted) -> None:
    @function
    def tale(s: ProgramState, hero: str) -> str:
        s += "Once " + gen("verb") + " " + hero
        s += ", " + gen("end") + "." + gen()
        return hero.upper()

    s = tale.run(hero="Ida")
    assert s.text() == "Once r0 Ida, r1.r2"
    assert (s["verb"], s["end"], s.ret_value) == ("r0", "r1", "IDA")
    assert str(s) == "ProgramState(Once r0 Ida, r1.r2)"
    assert s.error() is None


def test_neighbouring_constants_are_one_segment_up_to_a_generation(backend: Scripted) -> None:
    @function()
    def program(s: ProgramState) -> None:
        s += "a"
        s += ""
        s += "b" + raw("<bos>") + "c"
        s += gen("x") + "d"
        s += "e" + gen("y")
        s += "never sent"

    program.run()
    first, second = backend.nodes
    assert first.segments == (Text("ab"), Raw("<bos>"), Text("c"))
    assert (second.parent, second.segments) == (first.id, (Text("de"),))


def test_options_of_a_gen_come_before_those_of_the_call(backend: Scripted) -> None:
    @function
    def program(s: ProgramState) -> None:
        s += gen("x", max_tokens=3, stop="!") + gen("y")

    program.run(max_new_tokens=9, temperature=0, stop=["?"], seed=4)
    x, y = (node.sampling for node in backend.nodes)
    assert x is not None
    assert y is not None
    assert (x.max_tokens, x.stop, x.temperature, x.seed) == (3, ("!",), 0.0, 4)
    assert (y.max_tokens, y.stop, y.temperature, y.seed) == (9, ("?",), 0.0, 4)


def test_defaults_are_those_of_the_field(backend: Scripted) -> None:
    @function
    def program(s: ProgramState) -> None:
        s += gen("x")

    program.run()
    sampling = backend.nodes[0].sampling
    assert sampling is not None
    assert (sampling.max_tokens, sampling.temperature) == (128, 1.0)


def test_a_contradiction_between_gen_and_call_is_raised_at_the_append(backend: Scripted) -> None:
    @function
    def program(s: ProgramState) -> None:
        s += gen("x", min_tokens=20)

    assert program.run(max_tokens=30).error() is None
    with pytest.raises(InvalidRequest, match="min_tokens"):
        program.run(max_tokens=10)


def test_several_choices_are_a_list_and_the_text_goes_on_with_the_first(backend: Scripted) -> None:
    replies = iter(["one", "two", "three", "end"])
    backend.script = lambda prompt, node: next(replies)

    @function
    def program(s: ProgramState) -> None:
        s += "A:" + gen("boats", n=3) + "|" + gen("rest")

    s = program.run()
    assert s["boats"] == ["one", "two", "three"]
    assert s.text() == "A:one|end"
    assert backend.prompts[1] == "A:one|"
    metas = s.get_meta_info("boats")
    assert isinstance(metas, list)
    assert [meta["completion_tokens"] for meta in metas] == [3, 3, 5]


def test_turns_as_expressions_methods_contexts_and_edges(backend: Scripted) -> None:
    @function
    def chat(s: ProgramState) -> None:
        s += system("Be kind.")
        s += user("Hello " + gen("name"))
        s.assistant("  Hi" + gen("hi"))
        with s.user():
            s += "Bye"
            s += "."
        s += assistant_begin() + gen("bye") + assistant_end()

    s = chat.run()
    assert s.messages() == [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Hello r0"},
        {"role": "assistant", "content": "Hir1"},
        {"role": "user", "content": "Bye."},
        {"role": "assistant", "content": "r2"},
    ]
    assert s.text() == (
        "(chat)\n[system]Be kind.[/system]\n[user]Hello r0[/user]\n[assistant]  Hir1[/assistant]\n"
        "[user]Bye.[/user]\n[assistant]r2[/assistant]\n"
    )
    assert backend.nodes[1].segments == (Role("user", "end"), Role("assistant", "begin"), Text("  Hi"))


@pytest.mark.parametrize("expression", [user(assistant("x")), assistant_end(), user("x") + assistant_end()])
def test_turns_neither_nest_nor_end_unbegun(backend: Scripted, expression: Any) -> None:
    @function
    def chat(s: ProgramState) -> None:
        s += expression

    with pytest.raises(InvalidRequest, match="turn"):
        chat.run()


def test_reading_an_unknown_variable_is_a_key_error_that_lists_the_known(backend: Scripted) -> None:
    @function
    def program(s: ProgramState) -> None:
        s["known"] = 1
        s += gen("said")
        assert "said" in s
        assert "other" not in s
        s["other"]

    with pytest.raises(KeyError, match="'known', 'said'") as caught:
        program.run()
    assert isinstance(caught.value, UnknownVariable)


def test_variables_hold_any_value(backend: Scripted) -> None:
    @function
    def program(s: ProgramState) -> None:
        s.set_var("count", 41)
        s["count"] = s["count"] + 1
        s += f"{s['count']}"

    s = program.run()
    assert (s.get_var("count"), s.text()) == (42, "42")


def test_a_scope_keeps_its_text_whether_constant_or_generated(backend: Scripted) -> None:
    @function
    def program(s: ProgramState) -> None:
        s += "before "
        with s.var_scope("outer"):
            s += "a" + gen("x")
            with s.var_scope("inner"):
                s += "b"
        s += " after"

    s = program.run()
    assert (s["outer"], s["inner"], s.text()) == ("ar0b", "b", "before ar0b after")


def test_meta_info_counts_tokens_and_says_why_it_ended(backend: Scripted) -> None:
    backend.script = lambda prompt, node: Reply(["abc"], reason="length")

    @function
    def program(s: ProgramState) -> None:
        s += "1234" + gen() + "8" + gen("x")

    s = program.run()
    assert s.get_meta_info("x") == {
        "prompt_tokens": 8,
        "cached_tokens": 7,
        "completion_tokens": 3,
        "finish_reason": "length",
        "matched_stop": None,
        "time_to_first_token": 0.0,
        "time": 0.0,
    }
    assert s.get_meta_info("nobody") is None


def test_meta_info_has_log_probabilities_when_asked_for() -> None:
    generation = Generation("p", "main", "x", with_logprobs=True)
    generation.receive(Piece(0, 0, 0, "a", ids_of("a"), (TokenLogprob(97, -0.5, ((97, -0.5), (98, -1.0))),)))
    generation.receive(Finished(0, 0, 0, "stop", Usage(1, 0, 1), matched="b", kept=1))
    meta = generation.meta_info(generation.choices[0])
    assert meta["output_token_logprobs"] == [(-0.5, 97, None)]
    assert meta["output_top_logprobs"] == [[(-0.5, 97, None), (-1.0, 98, None)]]
    assert meta["matched_stop"] == "b"


def test_a_failed_generation_is_raised_by_its_readers_with_program_branch_and_name(backend: Scripted) -> None:
    backend.script = lambda prompt, node: Reply(["part"], error=PromptTooLong("9 tokens, 8 fit", field="prompt"))

    @function
    def doomed(s: ProgramState) -> None:
        s += "x" + gen("bad") + "y" + gen("after")

    s = doomed.run()
    for read in (lambda: s["bad"], lambda: s["after"], s.text, lambda: s.get_meta_info("bad")):
        with pytest.raises(GenerationFailed, match="doomed, main, bad: 9 tokens, 8 fit") as caught:
            read()
        assert isinstance(caught.value.__cause__, PromptTooLong)
        assert (caught.value.program, caught.value.branch, caught.value.node) == ("doomed", "main", "bad")
    assert s.messages() == []
    s.sync()
    assert isinstance(s.error(), GenerationFailed)


def test_a_statement_after_an_error_raises_at_once(backend: Scripted) -> None:
    backend.script = lambda prompt, node: Reply([], error=PromptTooLong("too long"))

    @function
    def program(s: ProgramState) -> None:
        s += gen("x")
        s.sync()
        for statement in (lambda: s.__iadd__("more"), lambda: s.fork(2), lambda: s.user("hello")):
            with pytest.raises(GenerationFailed, match="too long"):
                statement()

    program.run()
    assert len(backend.nodes) == 1


def test_what_a_backend_raises_is_the_failure_of_what_it_was_given(backend: Scripted) -> None:
    backend.submit_error = RuntimeError("the line is cut")

    @function
    def program(s: ProgramState) -> None:
        s += gen("x") + gen("y")

    s = program.run()
    with pytest.raises(GenerationFailed, match="the line is cut") as caught:
        s["y"]
    assert caught.value.__cause__ is backend.submit_error


def test_what_cannot_be_appended_is_refused(backend: Scripted) -> None:
    @function
    def program(s: ProgramState, what: object) -> None:
        s += what  # type: ignore[arg-type]

    for what in (None, object(), 7, ["a"]):
        with pytest.raises(InvalidRequest, match="takes strings and expressions"):
            program.run(what)


def test_nothing_is_added_after_the_end(backend: Scripted) -> None:
    @function
    def program(s: ProgramState) -> None:
        s += "x"

    s = program.run()
    with pytest.raises(InvalidRequest, match="ended"):
        s += "y"
    assert s.text() == "x"


def test_arguments_and_options_of_a_call_come_before_bound_ones(backend: Scripted) -> None:
    @function
    def program(s: ProgramState, dish: str, cook: str = "Mo") -> None:
        s += dish + cook + gen("x")

    bound = program.bind(cook="Ines", temperature=0.5, top_k=7)
    assert bound.run("Soup").text().startswith("SoupInes")
    assert bound.bind(dish="Pie").run(cook="Al", temperature=0.2).text().startswith("PieAl")
    assert bound.run("Soup", "Bo").text().startswith("SoupBo")
    first, second, _ = (node.sampling for node in backend.nodes)
    assert first is not None
    assert second is not None
    assert (first.temperature, first.top_k) == (0.5, 7)
    assert (second.temperature, second.top_k) == (0.2, 7)


def test_a_name_that_the_program_has_as_a_parameter_is_its_own(backend: Scripted) -> None:
    @function
    def program(s: ProgramState, n: int, seed: str) -> None:
        s += seed * n + gen("x")

    assert program.run(n=3, seed="a").text() == "aaar0"
    assert backend.nodes[0].sampling is not None
    assert (backend.nodes[0].sampling.n, backend.nodes[0].sampling.seed) == (1, None)


def test_wrong_arguments_raise_before_anything_runs(backend: Scripted) -> None:
    ran = []

    @function
    def program(s: ProgramState, a: str) -> None:
        ran.append(a)

    with pytest.raises(TypeError):
        program.run()
    with pytest.raises(TypeError, match="b"):
        program.run("a", b=1)
    with pytest.raises(InvalidRequest, match="temperature"):
        program.run("a", temperature=-1)
    with pytest.raises(InvalidRequest, match="max_new_tokens"):
        program.run("a", max_tokens=1, max_new_tokens=1)
    assert ran == []


def test_a_program_needs_a_state() -> None:
    with pytest.raises(InvalidRequest, match="state"):
        function(lambda: None)


def test_without_a_backend_the_error_says_what_to_do() -> None:
    set_default_backend(None)

    @function
    def program(s: ProgramState) -> None:
        s += "x"

    with pytest.raises(InvalidRequest, match="set_default_backend"):
        program.run()


def test_a_program_called_inside_another_runs_on_the_caller_s_backend(backend: Scripted) -> None:
    other = Scripted(lambda prompt, node: "other")

    @function
    def inner(s: ProgramState) -> str:
        s += "in" + gen("word")
        return "inner's"

    @function
    def outer(s: ProgramState) -> str:
        result = inner()
        s += result["word"] + gen("x")
        return str(result.ret_value)

    s = outer.run(backend=other)
    assert (s.text(), s.ret_value) == ("otherother", "inner's")
    assert (backend.opened, other.opened) == (0, 2)
    assert outer.run().text() == "r0r0"


def test_an_error_of_the_body_is_raised_by_run_and_ends_what_is_live(backend: Scripted) -> None:
    never = threading.Event()
    backend.script = lambda prompt, node: Reply(["x"], until=never)
    kept: list[ProgramState] = []

    @function
    def program(s: ProgramState) -> None:
        kept.append(s)
        s += gen("x")
        while not backend.submitted:
            pass
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        program.run()
    backend.settle()
    assert (backend.opened, backend.closed) == (1, 1)
    with pytest.raises(GenerationFailed) as caught:
        kept[0].text()
    assert isinstance(caught.value.__cause__, Aborted)


def test_a_program_is_opened_when_it_generates_and_closed_when_it_ends(backend: Scripted) -> None:
    @function
    def silent(s: ProgramState) -> None:
        s += "only text"

    @function
    def speaking(s: ProgramState) -> None:
        s += gen("x")
        s.sync()
        s += gen("y")

    silent.run()
    backend.settle()
    assert (backend.opened, backend.closed) == (0, 0)
    speaking.run()
    backend.settle()
    assert (backend.opened, backend.closed) == (1, 1)


def test_the_language_is_what_the_package_exports() -> None:
    assert radixrt.function is function
    assert radixrt.gen is gen


def test_the_expected_number_of_steps_reaches_the_runtime(backend: Scripted) -> None:
    @function(steps=7)
    def program(s: ProgramState, what: str = "x") -> None:
        s += what + gen("answer")

    program.run(backend=backend)
    program.bind(what="y").run(backend=backend)
    assert [terms.steps for terms in backend.terms] == [7, 7]


def steps_told(backend: Scripted) -> list[int | None]:
    return [terms.steps for terms in backend.terms]


def test_an_unknown_number_of_steps_is_learnt_from_the_runs_before(backend: Scripted) -> None:
    @function
    def program(s: ProgramState, turns: int) -> None:
        for turn in range(turns):
            s += f"{turn}" + gen()
        s += select("last", ["a", "b"])  # It generates nothing.

    program.run(turns=4)
    program.run(turns=6)
    program.bind(turns=2).run()
    assert program.steps is None
    program.run(turns=1)
    assert steps_told(backend) == [None, 4, 5, 4]


def test_what_was_learnt_long_ago_is_forgotten(backend: Scripted) -> None:
    @function
    def program(s: ProgramState, turns: int) -> None:
        s += "x" + gen()
        for _ in range(turns - 1):
            s += gen()

    for turns in [9] * 20 + [1] * 40:
        program.run(turns=turns)
    assert steps_told(backend)[20] == 9
    assert steps_told(backend)[-1] == 1


def test_a_run_that_fails_teaches_nothing(backend: Scripted) -> None:
    @function
    def program(s: ProgramState, fails: bool) -> None:
        s += "x" + gen("x")
        s["x"]
        if fails:
            raise OSError("the tool is broken")
        s += gen("y")

    with pytest.raises(OSError, match="broken"):
        program.run(fails=True)
    program.run(fails=False)
    program.run(fails=False)
    assert steps_told(backend) == [None, None, 2]


def test_the_later_runs_of_a_batch_know_what_the_earlier_ones_took(backend: Scripted) -> None:
    @function
    def program(s: ProgramState) -> None:
        s += "x" + gen() + gen() + gen()

    program.run_batch([{}] * 3, num_threads=1)
    assert steps_told(backend) == [None, 3, 3]


@pytest.mark.parametrize("number", [0, -1, 10**9, 2.0, True, "3"])
def test_what_is_no_number_of_steps_is_refused(number: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:

        @function(steps=number)
        def program(s: ProgramState) -> None: ...

    assert caught.value.field == "steps"


@pytest.mark.parametrize("backend", ["http://127.0.0.1:30000", function])
def test_what_is_no_backend_is_refused(backend: Any) -> None:
    @function
    def program(s: ProgramState) -> None: ...

    for use in (lambda: program.run(backend=backend), lambda: set_default_backend(backend)):
        with pytest.raises(InvalidRequest, match="a Runtime or a RuntimeEndpoint") as caught:
            use()
        assert caught.value.field == "backend"
