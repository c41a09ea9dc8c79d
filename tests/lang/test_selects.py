"""Programs that select, on a backend that scores by a script."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest

import radixrt as rx
from radixrt.errors import Aborted, GenerationFailed, InternalError, InvalidRequest, JoinFailed, MissingChoices
from radixrt.lang import ProgramState, function, gen, render_plain, select
from radixrt.lang.choices import ChoicesDecision, ChoicesSamplingMethod, token_length_normalized
from radixrt.lang.expressions import Expression
from tests.lang.scripted import Reply, Scripted


def favour(*wanted: str) -> Any:
    """A script by which the wanted options are likelier than others; among them the later ones."""

    def logprobs(prompt: str, option: str) -> Sequence[float]:
        likeliest = wanted.index(option) + 1 if option in wanted else 0
        return [-2.0 + likeliest / 10] * len(option)

    return logprobs


def run(body: Any, **options: Any) -> ProgramState:
    return function(body).run(**options)


def test_the_likeliest_option_is_the_variable_and_the_text(backend: Scripted) -> None:
    backend.logprobs = favour("blue")

    def body(s: ProgramState) -> None:
        s += "Colour: " + select("colour", ["red", "blue", "grey"]) + "\nSure: " + gen("sure")

    s = run(body)
    assert s["colour"] == "blue"
    assert s.text() == "Colour: blue\nSure: r1"
    assert backend.prompts == {0: "Colour: ", 1: "Colour: blue\nSure: "}


def test_options_keep_their_white_space_and_equal_ones_are_one(backend: Scripted) -> None:
    """D05, D07"""
    backend.logprobs = favour("  x ")

    def body(s: ProgramState) -> None:
        s += "Dear" + select("who", ["\ty", "  x ", "\ty", "  x "])

    s = run(body)
    assert s["who"] == "  x "
    (node,) = backend.nodes
    assert node.select is not None
    assert node.select.texts == ("\ty", "  x ")
    assert len(s.get_meta_info("who")["normalized_prompt_logprobs"]) == 2  # type: ignore[index,call-overload]


def test_gen_with_choices_is_a_select(backend: Scripted) -> None:
    """D09: whatever the gen or the call says about sampling."""
    backend.logprobs = favour("no")

    def body(s: ProgramState) -> None:
        s += "Yes or no? " + gen("answer", choices=["yes", "no"], max_tokens=4, temperature=1.5)

    s = run(body, temperature=0.7)
    assert s["answer"] == "no"
    assert backend.nodes[0].sampling is None


def test_the_meta_info_has_all_that_was_scored(backend: Scripted) -> None:
    backend.logprobs = lambda prompt, option: [-1.0, -3.0] if option == "ab" else [-0.5]

    def body(s: ProgramState) -> None:
        s += "?" + select("x", ["ab", "c"], choices_method="unconditional_likelihood_normalized")

    assert run(body).get_meta_info("x") == {
        "choices": ["ab", "c"],
        "choices_method": "unconditional_likelihood_normalized",
        "normalized_prompt_logprobs": [-2.0, -0.5],
        "input_token_logprobs": [[(-1.0, 97, None), (-3.0, 98, None)], [(-0.5, 99, None)]],
        "output_token_logprobs": [[], []],
        "unconditional_token_logprobs": [[(-1.0, 97, None), (-1.0, 98, None)], [(-1.0, 99, None)]],
        "normalized_unconditional_prompt_logprobs": [-1.0, 0.5],
        "prefix_tokens": 1,
        "prompt_tokens": 5,
        "cached_tokens": 1,
        "completion_tokens": 0,
    }


def test_unconditional_scores_are_asked_for_only_where_they_are_needed(backend: Scripted) -> None:
    def body(s: ProgramState) -> None:
        s += select("x", ["a"]) + select("y", ["a"], choices_method=rx.unconditional_likelihood_normalized)

    run(body)
    assert [node.select.unconditional for node in backend.nodes if node.select] == [False, True]


def test_a_users_own_method_decides_and_adds_what_it_likes(backend: Scripted) -> None:
    class Last(ChoicesSamplingMethod):
        def __call__(self, *, choices: list[str], **given: Any) -> ChoicesDecision:  # type: ignore[override]
            assert set(given) == {
                "normalized_prompt_logprobs",
                "input_token_logprobs",
                "output_token_logprobs",
                "unconditional_token_logprobs",
            }
            assert given["unconditional_token_logprobs"] is None
            return ChoicesDecision(choices[-1], {"why": "it is the last"})

    def body(s: ProgramState) -> None:
        s += "?" + select("x", ["a", "b"], choices_method=Last())

    s = run(body)
    assert s["x"] == "b"
    meta = s.get_meta_info("x")
    assert isinstance(meta, dict)
    assert (meta["why"], meta["choices_method"]) == ("it is the last", "Last")
    assert meta["normalized_prompt_logprobs"] == [-1.0, -1.0]


def raising(**given: Any) -> ChoicesDecision:
    raise ZeroDivisionError("no idea")


def inventing(**given: Any) -> ChoicesDecision:
    return ChoicesDecision("c")


def undecided(**given: Any) -> None:
    return None


@pytest.mark.parametrize(
    ("method", "cause"), [(raising, ZeroDivisionError), (inventing, InvalidRequest), (undecided, InvalidRequest)]
)
def test_a_method_that_does_not_decide_fails_its_select_and_nothing_else(
    backend: Scripted, method: Any, cause: type[Exception]
) -> None:
    def body(s: ProgramState) -> None:
        forks = s.fork(2)
        forks[0].branch.append("a" + select("x", ["b"], choices_method=method) + gen("after"))
        forks[1].branch.append("a" + select("x", ["b"]) + gen("after"))
        assert forks[1]["x"] == "b"
        assert forks[1]["after"]
        for name in ("x", "after"):
            with pytest.raises(GenerationFailed) as caught:
                forks[0][name]
            assert isinstance(caught.value.__cause__, cause)
            assert "fork 0 of 2" in str(caught.value)
        with pytest.raises(JoinFailed):
            forks.join()

    run(body)


def test_a_select_that_the_runtime_fails_fails_what_continues_it(backend: Scripted) -> None:
    backend.score_error = lambda prompt: InternalError("no scores") if prompt == "bad" else None

    def body(s: ProgramState) -> None:
        s += "bad" + select("x", ["a", "b"]) + "!" + gen("y")

    s = run(body)
    for name in ("x", "y"):
        with pytest.raises(GenerationFailed, match="no scores"):
            s[name]
    with pytest.raises(GenerationFailed):
        s.get_meta_info("x")
    assert isinstance(s.error(), GenerationFailed)
    assert "failed: no scores" in render_plain("p", s.tree())


def test_a_backend_that_cannot_be_reached_fails_the_select(backend: Scripted) -> None:
    backend.submit_error = RuntimeError("unreachable")

    def body(s: ProgramState) -> None:
        s += "?" + select("x", ["a"])

    with pytest.raises(GenerationFailed, match="unreachable"):
        run(body)["x"]


def test_selects_in_a_row_and_after_a_generation_continue_each_other(backend: Scripted) -> None:
    backend.logprobs = favour("b", "d")

    def body(s: ProgramState) -> None:
        s += "1" + gen("g") + select("x", ["a", "b"]) + select("y", ["c", "d"]) + "2" + select(choices=["e"])

    s = run(body)
    assert s.text() == "1r0bd2e"
    assert backend.prompts == {0: "1", 1: "1r0", 2: "1r0b", 3: "1r0bd2"}


def test_branches_after_a_select_continue_what_was_chosen(backend: Scripted) -> None:
    backend.logprobs = favour("two")

    def body(s: ProgramState) -> None:
        s += "n=" + select("n", ["one", "two"])
        forks = s.fork(2)
        forks += lambda i: f" ({i}) " + gen("g")
        forks.join()

    s = run(body)
    assert len(s["g"]) == 2
    assert [prompt for _, prompt in sorted(backend.prompts.items())] == ["n=", "n=two (0) ", "n=two (1) "]


def test_selects_in_branches_are_gathered_by_a_join(backend: Scripted) -> None:
    backend.logprobs = lambda prompt, option: [-1.0 if option in prompt else -2.0] * len(option)

    def body(s: ProgramState) -> None:
        s += "pick "
        forks = s.fork(3)
        forks += lambda i: "abc"[i] + select("x", ["a", "b", "c"])
        forks.join()

    assert run(body)["x"] == ["a", "b", "c"]


def test_a_join_appends_the_options_of_branches_as_text(backend: Scripted) -> None:
    backend.logprobs = favour("yes")

    def body(s: ProgramState) -> None:
        forks = s.fork(2)
        forks += lambda i: f"{i}:" + select("x", ["yes", "no"])
        forks.join("concate_and_append")
        s += gen("end")

    s = run(body)
    assert s.text().startswith("0:yes1:yes")
    assert "0:yes1:yes" in backend.prompts.values()


def test_the_program_branches_on_a_decision(backend: Scripted) -> None:
    backend.logprobs = favour("stop")

    def body(s: ProgramState) -> str:
        s += "Go on? " + select("next", ["go", "stop"])
        if s["next"] == "stop":
            return "stopped"
        s += gen("more")
        return "went on"

    assert run(body).ret_value == "stopped"


def test_text_iter_yields_the_chosen_text(backend: Scripted) -> None:
    backend.logprobs = favour("blue")

    def body(s: ProgramState) -> None:
        s += "Colour: " + select("colour", ["red", "blue"]) + ", " + gen("more")

    program = function(body)
    assert "".join(program.run(stream=True).text_iter()) == "Colour: blue, r1"
    assert list(program.run(stream=True).text_iter("colour")) == ["blue"]
    pieces = list(program.run(stream=True).text_iter("colour", return_meta_data=True))
    assert [piece for piece, _ in pieces] == ["blue"]
    assert pieces[-1][1]["choices"] == ["red", "blue"]

    async def read() -> str:
        return "".join([piece async for piece in program.run(stream=True).text_async_iter()])

    assert asyncio.run(read()) == "Colour: blue, r1"


def test_a_select_inside_turns_is_part_of_the_messages(backend: Scripted) -> None:
    backend.logprobs = favour("no")

    def body(s: ProgramState) -> None:
        s += rx.user("Well?") + rx.assistant(select("answer", ["yes", "no"]))

    assert run(body).messages() == [{"role": "user", "content": "Well?"}, {"role": "assistant", "content": "no"}]


def test_the_drawing_shows_the_options_and_their_scores(backend: Scripted) -> None:
    backend.logprobs = favour("blue")

    def body(s: ProgramState) -> None:
        s += "Colour: " + select("colour", ["red", "blue"]) + select(choices=["!"])

    assert render_plain("p", run(body).tree()) == "\n".join(
        [
            "p",
            '├── text  "Colour: "',
            '├── select colour  "blue"  15 computed, 8 reused, token_length_normalized',
            '│   ├── option  "red"  -2.0000',
            '│   └── option  "blue"  -1.9000',
            '└── select  "!"  1 computed, 12 reused, token_length_normalized',
            '    └── option  "!"  -2.0000',
        ]
    )


def test_a_run_that_raises_ends_its_selects(backend: Scripted) -> None:
    """The body raises while the select waits behind a generation that never comes."""
    never = threading.Event()
    backend.script = lambda prompt, node: Reply(["x"], until=never)
    kept: list[ProgramState] = []

    def body(s: ProgramState) -> None:
        kept.append(s)
        s += "?" + gen("g") + select("x", ["a", "b"])
        raise KeyError("enough")

    with pytest.raises(KeyError):
        run(body)
    backend.settle()
    with pytest.raises(GenerationFailed) as caught:
        kept[0]["x"]
    assert isinstance(caught.value.__cause__, Aborted)


# What is refused where it is written


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: select("x", []), "choices"),
        (lambda: select("x", "yes"), "choices"),
        (lambda: select("x", ["a", 1]), "choices[1]"),  # type: ignore[list-item]
        (lambda: select("x", ["a", ""]), "choices[1]"),
        (lambda: select("x", ["a"], temperature=0.5), "temperature"),
        (lambda: select("x", ["a"], temperature="hot"), "temperature"),  # type: ignore[arg-type]
        (lambda: select("x", ["a"], choices_method="best"), "choices_method"),
        (lambda: select("", ["a"]), "name"),
        (lambda: select("x"), "choices"),
        (lambda: gen("x", choices=[]), "choices"),
        (lambda: gen("x", choices_method="greedy_token_selection"), "choices_method"),
        (lambda: gen("x", choices=["a"], temperature=-1), "temperature"),
    ],
)
def test_a_wrong_select_is_refused_where_it_is_written(make: Any, field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        make()
    assert caught.value.field == field


def test_a_select_without_choices_fails_as_an_assertion_too() -> None:
    """Programs written for SGLang may catch it so."""
    with pytest.raises(AssertionError) as caught:
        select("x")
    assert isinstance(caught.value, MissingChoices)


def test_a_select_is_immutable_data_that_may_be_used_again(backend: Scripted) -> None:
    options = ["a", "b"]
    piece = select("x", options)
    options.append("c")
    assert isinstance(piece, Expression)
    assert piece.options.texts == ("a", "b")
    assert piece.method is token_length_normalized

    def body(s: ProgramState) -> None:
        forks = s.fork(2)
        forks += piece
        forks.join()

    assert run(body)["x"] == ["a", "a"]
