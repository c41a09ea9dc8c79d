"""ReAct agent: thought, action, and what a tool answers, in one context that grows; the tool takes its time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import radixrt as rx
from benchmarks.programs.shape import Shape, Tool
from benchmarks.programs.texts import Texts


@rx.function
def react_agent(s: rx.ProgramState, examples: str, question: str, tool: Tool, turns: int) -> None:
    s += examples + f"Question: {question}\n"
    for turn in range(turns):
        s += f"Thought {turn}:" + rx.gen("thought", max_tokens=40, stop="\n") + "\n"
        s += f"Action {turn}:" + rx.gen("action", max_tokens=12, stop="\n") + "\n"
        s += f"Observation {turn}: {tool(s['action'])}\n"
    s += "Answer:" + rx.gen("answer", max_tokens=16, stop="\n")


def arguments(texts: Texts, runs: int) -> list[Mapping[str, Any]]:
    examples = "".join(
        f"Question: {texts.sentence(10)}\nThought 0: {texts.sentence(20)}\nAction 0: {texts.words(4)}\n"
        f"Observation 0: {texts.paragraph(3)}\nAnswer: {texts.words(4)}\n\n"
        for _ in range(4)
    )
    return [
        {
            "examples": examples,
            "question": texts.sentence(10, 25),
            "tool": Tool(Texts(texts.number(0, 2**31)), words=60, least_steps=10, most_steps=60),
            "turns": texts.number(3, 7),
        }
        for _ in range(runs)
    ]


SHAPE = Shape("ReAct agent", react_agent, arguments)
