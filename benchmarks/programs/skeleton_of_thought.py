"""Skeleton of thought: an outline, whose points are written in parallel and then joined to one answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import radixrt as rx
from benchmarks.programs.shape import Shape
from benchmarks.programs.texts import Texts

POINTS = 5


@rx.function(steps=POINTS + 2)
def skeleton_of_thought(s: rx.ProgramState, instructions: str, question: str) -> None:
    s += instructions + f"Question: {question}\nSkeleton:" + rx.gen("skeleton", max_tokens=40) + "\n"
    points = s.fork(POINTS)
    points += lambda number: f"Point {number}:" + rx.gen("point", max_tokens=60)
    points.join()
    s += "".join(f"{number}. {text}\n" for number, text in enumerate(s["point"]))
    s += "In one sentence:" + rx.gen("summary", max_tokens=24)


def arguments(texts: Texts, runs: int) -> list[Mapping[str, Any]]:
    instructions = texts.paragraph(15) + "\n"
    return [{"instructions": instructions, "question": texts.sentence(15, 60)} for _ in range(runs)]


SHAPE = Shape("skeleton of thought", skeleton_of_thought, arguments)
