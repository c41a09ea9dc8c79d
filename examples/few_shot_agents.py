"""Ten agents over one shared setting, three turns each: what the prefix cache saves.

Each agent is a program of its own; all begin with the same 1,600 tokens. The runtime computes those once, whichever
agent comes first, and each turn continues the one before. The second run computes every prompt whole, for comparison.

    python examples/few_shot_agents.py
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from textwrap import shorten

from rich.console import Console
from rich.table import Table

import radixrt as rx

SETTING = (Path(__file__).parent / "settings" / "harrow_quay.md").read_text()

INTERVIEWS = {
    "Ines Harrowgate, the harbour master": (
        "When does the ferry leave?",
        "What is a stall?",
        "How many boats are there?",
    ),
    "Tobias Wren, the lighthouse keeper": (
        "Will it rain tomorrow?",
        "How old is your lamp?",
        "What does a red flag mean?",
    ),
    "Marta Lind, the baker": ("Is there any seed loaf left?", "When do you open?", "Who buys the rye?"),
    "Doctor Elias Crane": ("How long have you been here?", "Do you want to retire?", "Who will come after you?"),
    "Sister Agnes, who rings the fog bell": (
        "When do you ring the bell?",
        "Where are your bees?",
        "When is there fog?",
    ),
    "Piet Vander, the captain of the ferry": (
        "How long is the crossing?",
        "What is the fare?",
        "When do you not sail?",
    ),
    "Ruth Okafor, the teacher": (
        "How many children do you teach?",
        "What about the roof?",
        "What is the Lantern Walk?",
    ),
    "Jonas Bell, the innkeeper": ("Have you a room for tonight?", "What is for supper?", "Are you open on Monday?"),
    "Hanna Skye, the captain of the Constance": (
        "What do you catch?",
        "How large is your crew?",
        "When is the herring?",
    ),
    "Samuel Pike, the librarian": ("How old is the North Pier?", "What happened in 1887?", "Is the library open late?"),
}


@rx.function
def interview(s: rx.ProgramState, person: str, questions: tuple[str, ...]) -> None:
    """A visitor asks one of the townspeople."""
    s += rx.system(SETTING)
    for turn, question in enumerate(questions):
        s += rx.user(f"A visitor asks {person}: {question}")
        s += rx.assistant(rx.gen(f"answer {turn}", max_tokens=40, temperature=0, stop="\n"))


@dataclass
class Account:
    """What one interview cost. Times in seconds."""

    prompt: int
    reused: int
    first_tokens: list[float]
    answers: list[str]

    @property
    def computed(self) -> int:
        return self.prompt - self.reused


def hold_interviews(*, prefix_cache: bool) -> tuple[list[Account], float]:
    """All ten at once on a runtime of their own, nothing warmed up before; and the seconds they took."""
    with rx.Runtime(prefix_cache=prefix_cache) as runtime:
        start = time.perf_counter()
        states = interview.run_batch(
            [{"person": person, "questions": questions} for person, questions in INTERVIEWS.items()],
            backend=runtime,
            progress_bar=True,
        )
        accounts = [account(state) for state in states]
        return accounts, time.perf_counter() - start


def account(state: rx.ProgramState) -> Account:
    """Sum up a finished interview; raises what a generation failed with."""
    names = [f"answer {turn}" for turn in range(3)]
    turns = [state.get_meta_info(name) for name in names]
    return Account(
        prompt=sum(turn["prompt_tokens"] for turn in turns),
        reused=sum(turn["cached_tokens"] for turn in turns),
        first_tokens=[turn["time_to_first_token"] for turn in turns],
        answers=[state[name].strip() for name in names],
    )


def main() -> None:
    console = Console(width=130)
    console.print("[bold]Ten agents, one setting, three turns each: with the prefix cache ...")
    cached, cached_seconds = hold_interviews(prefix_cache=True)
    console.print("[bold]... and the same with every prompt computed whole.")
    plain, plain_seconds = hold_interviews(prefix_cache=False)

    table = Table(title="Prompt tokens of three turns, and median seconds to an answer's first token")
    table.add_column("")
    for heading in ("computed", "reused", "first token", "no cache: computed", "first token"):
        table.add_column(heading, justify="right", min_width=8)
    table.add_column("says")
    for person, with_cache, without in zip(INTERVIEWS, cached, plain, strict=True):
        table.add_row(
            person.split(",")[0],
            f"{with_cache.computed:,}",
            f"{with_cache.reused:,}",
            f"{median(with_cache.first_tokens):.2f} s",
            f"{without.computed:,}",
            f"{median(without.first_tokens):.2f} s",
            shorten(with_cache.answers[0], 80),
        )
    console.print(table)

    prompt = sum(a.prompt for a in cached)
    share = sum(a.reused for a in cached) / prompt
    console.print(f"{share:.1%} of all {prompt:,} prompt tokens were served from the cache.")
    console.print(f"{cached_seconds:.1f} s with it, {plain_seconds:.1f} s without.")


if __name__ == "__main__":
    main()
