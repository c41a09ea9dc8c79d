"""Few-shot multiple choice (MMLU, 5-shot): examples of one subject, a question, one letter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import radixrt as rx
from benchmarks.programs.shape import Shape
from benchmarks.programs.texts import Texts

SUBJECTS, SHOTS = 4, 5


@rx.function(steps=1)
def few_shot_choice(s: rx.ProgramState, examples: str, question: str) -> None:
    s += examples + question + "Answer:"
    s += rx.gen("answer", max_tokens=1)


def question(texts: Texts) -> str:
    """A question with its four possible answers."""
    answers = "".join(f"{letter}. {texts.words(2, 6)}\n" for letter in "ABCD")
    return f"{texts.sentence(12, 30)}\n{answers}"


def arguments(texts: Texts, runs: int) -> list[Mapping[str, Any]]:
    subjects = [
        f"Questions about {texts.words(2)}.\n\n"
        + "".join(f"{question(texts)}Answer: {'ABCD'[texts.number(0, 3)]}\n\n" for _ in range(SHOTS))
        for _ in range(SUBJECTS)
    ]
    return [{"examples": subjects[i % SUBJECTS], "question": question(texts)} for i in range(runs)]


SHAPE = Shape("few-shot choice", few_shot_choice, arguments)
