"""Generative agents: what happens to an agent is rated, remembered and acted upon, and now and then it reflects.

The questions about an event branch off the agent's memory and are dropped; between two events the town moves on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import radixrt as rx
from benchmarks.programs.shape import Shape, Tool
from benchmarks.programs.texts import Texts


@rx.function
def generative_agent(s: rx.ProgramState, town: str, persona: str, tool: Tool, events: int) -> None:
    s += town + persona
    for hour in range(events):
        s += f"Hour {hour}: {tool('what happens')}\n"
        questions = s.fork(3)
        questions[0] += "How moving is this, from 1 to 10?" + rx.gen("rating", max_tokens=2)
        questions[1] += "Who does what to whom?" + rx.gen("triple", max_tokens=12, stop="\n")
        questions[2] += "Where to go now?" + rx.gen("place", max_tokens=8, stop="\n")
        questions.join()
        s += f"Memory: {s['triple'][0]}, at {s['place'][0]}.\nPlan:" + rx.gen("plan", max_tokens=24, stop="\n") + "\n"
    s += "What did you learn today?" + rx.gen("reflection", max_tokens=40)


def arguments(texts: Texts, runs: int) -> list[Mapping[str, Any]]:
    town = f"The town of {texts.words(1)}. {texts.paragraph(25)}\n"
    return [
        {
            "town": town,
            "persona": f"You are {texts.words(2)}. {texts.paragraph(10)}\n",
            "tool": Tool(Texts(texts.number(0, 2**31)), words=25, least_steps=10, most_steps=60),
            "events": texts.number(3, 6),
        }
        for _ in range(runs)
    ]


SHAPE = Shape("generative agents", generative_agent, arguments)
