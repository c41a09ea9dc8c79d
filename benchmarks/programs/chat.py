"""Multi-turn chat, with short and with long answers; a person takes a while to write the next turn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import radixrt as rx
from benchmarks.programs.shape import Shape, Tool
from benchmarks.programs.texts import Texts

TURNS = 4


@rx.function(steps=TURNS)
def chat(s: rx.ProgramState, instructions: str, tool: Tool, answer_tokens: int) -> None:
    s += rx.system(instructions)
    for _ in range(TURNS):
        s += rx.user(tool("what the person writes"))
        s += rx.assistant(rx.gen("answer", max_tokens=answer_tokens, min_tokens=answer_tokens // 2))
        s.sync()


def conversations(answer_tokens: int) -> Callable[[Texts, int], list[Mapping[str, Any]]]:
    """Arguments of runs with answers of at most so many tokens."""

    def arguments(texts: Texts, runs: int) -> list[Mapping[str, Any]]:
        instructions = [texts.paragraph(10) for _ in range(2)]
        return [
            {
                "instructions": instructions[i % 2],
                "tool": Tool(Texts(texts.number(0, 2**31)), words=50, least_steps=10, most_steps=60),
                "answer_tokens": answer_tokens,
            }
            for i in range(runs)
        ]

    return arguments


SHORT = Shape("chat, short answers", chat, conversations(16))
LONG = Shape("chat, long answers", chat, conversations(120))
