"""Tree of thought (GSM-8K): proposals branch off, each is executed and judged, and the best two are carried on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import radixrt as rx
from benchmarks.programs.shape import Shape
from benchmarks.programs.texts import Texts

WIDTH, KEPT, DEPTH = 3, 2, 3
# A beam of 1, then of KEPT: each of its states makes WIDTH proposals, each of which is generated and rated.
STEPS = 2 * WIDTH * (1 + KEPT * (DEPTH - 1)) + 1


@rx.function(steps=STEPS)
def tree_of_thought(s: rx.ProgramState, examples: str, task: str, seed: int) -> None:
    s += examples + f"Task: {task}\n"
    beam = [s]
    for level in range(DEPTH):
        proposals = [branch for state in beam for branch in state.fork(WIDTH)]
        for number, branch in enumerate(proposals):
            noise = seed + level * 100 + number
            branch += f"Step {level}:" + rx.gen("step", max_tokens=32, stop="\n", temperature=0.8, seed=noise) + "\n"
        ratings = [branch.fork(1)[0] for branch in proposals]
        for branch in ratings:
            branch += "How promising is this?" + rx.gen("rating", max_tokens=4)
        values = [branch["rating"] for branch in ratings]
        beam = [proposals[i] for i in sorted(range(len(proposals)), key=values.__getitem__)[:KEPT]]
    best = beam[0]
    best += "Answer:" + rx.gen("answer", max_tokens=16)


def arguments(texts: Texts, runs: int) -> list[Mapping[str, Any]]:
    examples = "".join(f"Task: {texts.paragraph(2)}\nStep 0: {texts.sentence(20)}\n\n" for _ in range(5))
    return [{"examples": examples, "task": texts.paragraph(5), "seed": 1000 * i} for i in range(runs)]


SHAPE = Shape("tree of thought", tree_of_thought, arguments)
