"""An agent with two tools: the model decides what to do, and can decide nothing that is not possible.

Which tool comes next is a `select`, what it is asked a `select` or a `gen` with a regular expression. So even a model
of 135 million parameters never calls a tool that is not there, nor one with an argument that does not parse. Each turn
continues the last one's tokens; all agents share the examples at the beginning, which are computed once.

    python examples/agent_tools.py
"""

from __future__ import annotations

import argparse
import operator
import re

from rich.console import Console

import radixrt as rx

FACTS = {
    "ferry ticket": "6 crowns",
    "bus ticket": "11 crowns",
    "market stall": "2 crowns a day",
    "room at the inn": "9 crowns a night",
    "seed loaf": "3 crowns",
}

EXAMPLES = """\
Answer the question in steps. First look up the price, then calculate, then answer.

Question: How much do 2 rooms cost?
Step: look up room at the inn
Result: 9 crowns a night
Step: calculate 2 * 9
Result: 18
Step: answer 18 crowns

Question: What do I pay for 10 seed loaves?
Step: look up seed loaf
Result: 3 crowns
Step: calculate 10 * 3
Result: 30
Step: answer 30 crowns

"""

QUESTIONS = (
    "How much do 4 ferry tickets cost?",
    "What do I pay for 7 bus tickets?",
    "What does a market stall cost for 5 days?",
)

MOST_STEPS = 5
# Both end with the line, as the examples do: a model that is only let end, but not write the "\n" that it would write
# there, may rather go on with another digit.
CALCULATION = r"[1-9]\d{0,3} [-+*] [1-9]\d{0,3}\n"
ANSWER = r"[1-9]\d{0,4} crowns\n"
OPERATORS = {"+": operator.add, "-": operator.sub, "*": operator.mul}


def calculate(text: str) -> str:
    """What `CALCULATION` comes to."""
    left, sign, right = text.split()
    return str(OPERATORS[sign](int(left), int(right)))


@rx.function
def agent(s: rx.ProgramState, question: str) -> str:
    """Steps until an answer is given; returns it, or what was said last."""
    s += EXAMPLES + f"Question: {question}\n"
    for _ in range(MOST_STEPS):
        s += "Step:" + rx.select("tool", [" look up", " calculate", " answer"])
        match s["tool"].strip():
            case "look up":
                s += rx.select("key", [f" {name}" for name in FACTS]) + "\n"
                result = FACTS[s["key"].strip()]
            case "calculate":
                s += " " + rx.gen("calculation", regex=CALCULATION, max_tokens=16)
                result = calculate(s["calculation"])
            case _:
                s += " " + rx.gen("answer", regex=ANSWER, max_tokens=12)
                return str(s["answer"]).strip()
        s += f"Result: {result}\n"
    return "(no answer)"


def main() -> None:
    parser = argparse.ArgumentParser(description="An agent with two tools.")
    parser.add_argument("questions", nargs="*", default=QUESTIONS, help="what to ask")
    parser.add_argument("--model", default="smollm2-135m")
    options = parser.parse_args()

    console = Console(highlight=False)
    with rx.Runtime(options.model) as runtime:
        states = agent.run_batch([{"question": q} for q in options.questions], backend=runtime, temperature=0)
        for question, state in zip(options.questions, states, strict=True):
            steps = state.text().removeprefix(EXAMPLES).splitlines()[1:]
            console.print(f"[bold]{question}[/bold]")
            for step in steps:
                console.print("   " + re.sub(r"^(Step|Result):", r"[dim]\1:[/dim]", step))
            console.print(f"   [bold green]{state.ret_value}[/bold green]\n")
        stats = runtime.stats()
        console.print(f"{stats.cached_tokens:,} of {stats.prompt_tokens:,} prompt tokens came from the prefix cache.")


if __name__ == "__main__":
    main()
