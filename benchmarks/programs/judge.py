"""Judge with branches (branch-solve-merge): an essay is judged in several dimensions, and the judgements are merged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import radixrt as rx
from benchmarks.programs.shape import Shape
from benchmarks.programs.texts import Texts

DIMENSIONS = ("clarity", "originality", "evidence", "style")


@rx.function(steps=len(DIMENSIONS) + 1)
def judge(s: rx.ProgramState, instructions: str, essay: str) -> str:
    s += rx.system(instructions)
    s += rx.user(f"Judge this essay:\n{essay}")
    branches = s.fork(len(DIMENSIONS))
    for branch, dimension in zip(branches, DIMENSIONS, strict=True):
        branch += rx.user(f"Its {dimension}?")
        branch += rx.assistant(rx.gen("judgement", max_tokens=48))
    branches.join()
    s += rx.user("These are the judgements:\n" + "\n".join(s["judgement"]) + "\nIs it good?")
    s += rx.assistant_begin()
    s += rx.gen("summary", max_tokens=32)
    s += rx.select("verdict", [" good", " bad"])
    s += rx.assistant_end()
    return str(s["verdict"])


def arguments(texts: Texts, runs: int) -> list[Mapping[str, Any]]:
    instructions = texts.paragraph(12)
    return [{"instructions": instructions, "essay": texts.paragraph(texts.number(12, 24))} for _ in range(runs)]


SHAPE = Shape("judge", judge, arguments)
