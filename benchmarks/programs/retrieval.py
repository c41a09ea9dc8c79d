"""Retrieval pipeline (DSPy): a search query is written, passages are fetched, and the answer is written from them.

Two questions in three are about passages that other runs fetch too; each stage of the pipeline has its own prompt.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import radixrt as rx
from benchmarks.programs.shape import Shape, Tool
from benchmarks.programs.texts import Texts

POPULAR = 6


@rx.function(steps=3)
def retrieval(
    s: rx.ProgramState, query_prompt: str, answer_prompt: str, question: str, passages: str, tool: Tool
) -> None:
    stages = s.fork(2)
    query, answer = stages[0], stages[1]
    query += query_prompt + f"Question: {question}\nQuery:" + rx.gen("query", max_tokens=12, stop="\n")
    tool(query["query"])
    answer += answer_prompt + f"Passages: {passages}\nQuestion: {question}\nReasoning:"
    answer += rx.gen("reasoning", max_tokens=40, stop="\n") + "\nAnswer:" + rx.gen("answer", max_tokens=12)


def arguments(texts: Texts, runs: int) -> list[Mapping[str, Any]]:
    popular = [texts.paragraph(12) for _ in range(POPULAR)]
    prompts = {
        "query_prompt": texts.paragraph(12) + "\n",
        "answer_prompt": texts.paragraph(16) + "\n",
    }
    return [
        {
            **prompts,
            "question": texts.sentence(12, 24),
            "passages": popular[texts.number(0, POPULAR - 1)] if i % 3 else texts.paragraph(12),
            "tool": Tool(Texts(texts.number(0, 2**31)), words=1, least_steps=5, most_steps=30),
        }
        for i in range(runs)
    ]


SHAPE = Shape("retrieval pipeline", retrieval, arguments)
