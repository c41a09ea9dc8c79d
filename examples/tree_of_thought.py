"""A tree of thoughts: at each level the program forks, judges the branches, and goes on with the best.

A thought is the next sentence of a story, written at some temperature. It is judged by the model itself: a branch off
the thought asks whether the story is a happy one, and a `select` between "yes" and "no" says how likely either is. The
difference of the two log-probabilities is the score. The chosen branch is continued as it stands: nothing that a
thought or its judge have in common with the others is ever computed twice.

    python examples/tree_of_thought.py --width 4 --depth 3
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from rich import print
from rich.tree import Tree

import radixrt as rx

TASK = "Tell a story about an old lighthouse keeper and his dog, one sentence at a time."
QUESTION = "Is this a happy story? Answer yes or no."
SENTENCE = r"[A-Z][a-z]+ [A-Za-z ,']{20,110}[a-z]\."


@dataclass
class Thought:
    """A sentence that was considered, and how much better "yes" is than "no" as an answer about it (a log ratio)."""

    text: str
    score: float
    chosen: bool = False


@rx.function
def think(s: rx.ProgramState, task: str, question: str, width: int, depth: int) -> list[list[Thought]]:
    """`depth` levels of `width` thoughts each; returns them, the chosen ones marked."""
    s += rx.user(task)
    s += rx.assistant_begin()
    levels = []
    for level in range(depth):
        branches = list(s.fork(width))
        judges = []
        for number, branch in enumerate(branches):
            branch += rx.gen("thought", regex=SENTENCE, max_tokens=40, temperature=0.7, seed=100 * level + number) + " "
            judge = branch.fork(1)[0]
            judge += rx.assistant_end()
            judge += rx.user(question)
            judge += rx.assistant(rx.select("verdict", ["yes", "no"]))
            judges.append(judge)
        thoughts = [Thought(b["thought"], score(j)) for b, j in zip(branches, judges, strict=True)]
        best = max(range(width), key=lambda index: thoughts[index].score)
        thoughts[best].chosen = True
        levels.append(thoughts)
        s = branches[best]
    return levels


def score(judge: rx.ProgramState) -> float:
    """How much likelier "yes" is than "no", as a difference of log-probabilities."""
    verdict = judge.get_meta_info("verdict")
    likelihood = dict(zip(verdict["choices"], verdict["normalized_prompt_logprobs"], strict=True))
    return float(likelihood["yes"] - likelihood["no"])


def drawn(task: str, levels: list[list[Thought]]) -> Tree:
    """The thoughts, each level below the chosen one of the level above."""
    root = place = Tree(f"[bold]{task}")
    for thoughts in levels:
        for thought in thoughts:
            style = "bold green" if thought.chosen else "dim"
            node = place.add(f"[{style}]{thought.score:+.2f}  {thought.text}")
            if thought.chosen:
                below = node
        place = below
    return root


def main() -> None:
    parser = argparse.ArgumentParser(description="Fork, judge, go on with the best.")
    parser.add_argument("--task", default=TASK)
    parser.add_argument("--question", default=QUESTION, help="the judge's; the likelier `yes`, the better")
    parser.add_argument("--width", type=int, default=3)
    parser.add_argument("--depth", type=int, default=3)
    parser.add_argument("--model", default="smollm2-135m")
    options = parser.parse_args()

    with rx.Runtime(options.model) as runtime:
        state = think.run(options.task, options.question, options.width, options.depth, backend=runtime)
        error = state.error()
        if error is not None:
            raise error
        levels = state.ret_value
        print(drawn(options.task, levels))
        story = " ".join(thought.text for thoughts in levels for thought in thoughts if thought.chosen)
        print(f"\n{story}\n")
        stats = runtime.stats()
        print(f"{stats.cached_tokens:,} of {stats.prompt_tokens:,} prompt tokens came from the prefix cache.")


if __name__ == "__main__":
    main()
