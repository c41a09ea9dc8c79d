"""Few-shot select (HellaSwag, 20-shot): the likeliest of four endings, behind examples that all runs share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import radixrt as rx
from benchmarks.programs.shape import Shape
from benchmarks.programs.texts import Texts

SHOTS = 20


@rx.function(steps=1)
def few_shot_select(s: rx.ProgramState, examples: str, beginning: str, endings: list[str]) -> str:
    s += examples + beginning
    s += rx.select("ending", endings)
    return str(s["ending"])


def arguments(texts: Texts, runs: int) -> list[Mapping[str, Any]]:
    examples = "".join(f"{texts.sentence(12, 20)} {texts.sentence(6, 12)}\n\n" for _ in range(SHOTS))
    return [
        {
            "examples": examples,
            "beginning": texts.sentence(20, 40),
            "endings": [" " + texts.sentence(8, 20) for _ in range(4)],
        }
        for _ in range(runs)
    ]


SHAPE = Shape("few-shot select", few_shot_select, arguments)
