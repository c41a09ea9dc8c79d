"""Reasoning kept apart from the answer."""

from __future__ import annotations

import pytest

from radixrt.errors import GenerationFailed, InternalError, InvalidRequest
from radixrt.lang import ProgramState, assistant, function, gen, select, separate_reasoning
from radixrt.lang.reasoning import ReasoningFormat
from tests.lang.scripted import Reply, Scripted

THOUGHT = "<think>\nTwo and two.</think>\n\nFour."


@function
def ask(s: ProgramState, model_type: str, n: int = 1) -> None:
    s += assistant(separate_reasoning("A: " + gen("answer", n=n) + "!", model_type=model_type))
    s += gen("rest")


def run(backend: Scripted, reply: str | Reply, model_type: str, n: int = 1) -> ProgramState:
    backend.script = lambda prompt, node: reply if node.id == 0 else "."
    return ask.run(model_type, n)


def test_the_variable_is_the_answer_and_another_one_the_reasoning(backend: Scripted) -> None:
    s = run(backend, THOUGHT, "qwen3")
    assert s["answer"] == "\n\nFour."
    assert s["answer_reasoning_content"] == "\nTwo and two."
    assert "answer_reasoning_content" in s


def test_text_and_context_keep_what_was_generated(backend: Scripted) -> None:
    s = run(backend, THOUGHT, "qwen3")
    assert THOUGHT in s.text()
    assert THOUGHT in backend.prompts[1]


@pytest.mark.parametrize(
    ("model_type", "text", "reasoning", "answer"),
    [
        ("qwen3", "Four.", "", "Four."),
        ("qwen3", "Four, <think>not five</think>.", "", "Four, <think>not five</think>."),
        ("qwen3", "<think>Two and", "Two and", ""),
        ("deepseek-r1", "Two and two.</think>Four.", "Two and two.", "Four."),
        ("deepseek-r1", "<think>Two and two.</think>Four.", "Two and two.", "Four."),
        ("deepseek-r1", "Two and", "Two and", ""),
        ("qwen3-thinking", "", "", ""),
        ("kimi", "◁think▷Two.◁/think▷Four.</think>", "Two.", "Four.</think>"),
    ],
)
def test_each_format_has_its_marks(backend: Scripted, model_type: str, text: str, reasoning: str, answer: str) -> None:
    s = run(backend, text, model_type)
    assert (s["answer_reasoning_content"], s["answer"]) == (reasoning, answer)


def test_several_choices_are_lists(backend: Scripted) -> None:
    s = run(backend, THOUGHT, "qwen3", n=2)
    assert s["answer_reasoning_content"] == ["\nTwo and two."] * 2
    assert s["answer"] == ["\n\nFour."] * 2


def test_a_stream_of_the_variable_is_the_answer(backend: Scripted) -> None:
    backend.script = lambda prompt, node: Reply(list(THOUGHT)) if node.id == 0 else "."
    s = ask.run("qwen3", stream=True)
    assert "".join(s.text_iter("answer")) == "\n\nFour."
    assert "".join(s.text_iter("answer_reasoning_content")) == "\nTwo and two."


def test_meta_information_is_that_of_the_gen(backend: Scripted) -> None:
    meta = run(backend, THOUGHT, "qwen3").get_meta_info("answer")
    assert isinstance(meta, dict)
    assert meta["completion_tokens"] == len(THOUGHT)


def test_a_failure_is_raised_by_either_variable(backend: Scripted) -> None:
    s = run(backend, Reply(["x"], error=InternalError("broken")), "qwen3")
    for name in ("answer", "answer_reasoning_content"):
        with pytest.raises(GenerationFailed, match="broken"):
            s[name]


def test_a_gather_takes_both(backend: Scripted) -> None:
    backend.script = lambda prompt, node: THOUGHT

    @function
    def program(s: ProgramState) -> None:
        forks = s.fork(2)
        forks += separate_reasoning(gen("answer"), "qwen3")
        forks.join()

    s = program.run()
    assert s["answer"] == ["\n\nFour."] * 2
    assert s["answer_reasoning_content"] == ["\nTwo and two."] * 2


def test_what_cannot_be_separated_is_refused_where_it_is_written() -> None:
    for expression, model_type, field in (
        (gen("x"), "gpt-oss", "model_type"),
        (gen(), "qwen3", "name"),
        ("text", "qwen3", "expr"),
    ):
        with pytest.raises(InvalidRequest) as caught:
            separate_reasoning(expression, model_type)  # type: ignore[arg-type]
        assert caught.value.field == field
    choice = select("x", ["a"])
    assert list(separate_reasoning(choice, "qwen3").pieces()) == [choice]


def test_nothing_but_the_marks_is_lost() -> None:
    text = "one</t>two</t>three"
    assert ReasoningFormat("<t>", "</t>", always=True).separate(text) == ("one", "two</t>three")
