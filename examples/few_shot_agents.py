"""Ten agents over one shared setting, three turns each, the last answer a JSON object: what the prefix cache saves.

Each agent is a program of its own; all begin with the same 1,600 tokens. The runtime computes those once, whichever
agent comes first, and each turn continues the one before. The last answer is held to a Pydantic model's schema while
it is generated, and then validated by that model. For comparison one more runtime computes every prompt of the first
agents whole, the cache being off: of these alone, since all ten would take minutes on a small machine.

    python examples/few_shot_agents.py
    python examples/few_shot_agents.py --without-cache 10
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import median
from textwrap import shorten
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field
from rich.console import Console
from rich.table import Table

import radixrt as rx

SETTING = (Path(__file__).parent / "settings" / "harrow_quay.md").read_text()

INTERVIEWS = {
    "Ines Harrowgate, the harbour master": ("When does the ferry leave?", "What is a stall?"),
    "Tobias Wren, the lighthouse keeper": ("Will it rain tomorrow?", "How old is your lamp?"),
    "Marta Lind, the baker": ("Is there any seed loaf left?", "When do you open?"),
    "Doctor Elias Crane": ("How long have you been here?", "Do you want to retire?"),
    "Sister Agnes, who rings the fog bell": ("When do you ring the bell?", "Where are your bees?"),
    "Piet Vander, the captain of the ferry": ("How long is the crossing?", "What is the fare?"),
    "Ruth Okafor, the teacher": ("How many children do you teach?", "What about the roof?"),
    "Jonas Bell, the innkeeper": ("Have you a room for tonight?", "What is for supper?"),
    "Hanna Skye, the captain of the Constance": ("What do you catch?", "How large is your crew?"),
    "Samuel Pike, the librarian": ("How old is the North Pier?", "What happened in 1887?"),
}


class Entry(BaseModel):
    """An entry in the town's directory. Its members are generated in this order."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(pattern=r"^[A-Z][a-z]+( [A-Z][a-z]+){0,2}$", max_length=30)
    occupation: str = Field(pattern=r"^[a-z]+( [a-z]+){0,4}$", max_length=40)
    lives_in: Literal["Harrow Quay", "Upper Sill", "Merrin", "Aldermouth"]


@rx.function
def interview(s: rx.ProgramState, person: str, questions: tuple[str, ...]) -> None:
    """A visitor asks one of the townspeople, then for what to write into the directory."""
    s += rx.system(SETTING)
    for turn, question in enumerate(questions):
        s += rx.user(f"A visitor asks {person}: {question}")
        s += rx.assistant(rx.gen(f"answer {turn}", max_tokens=20, temperature=0, stop="\n"))
    s += rx.user(f"Write the entry of {person} in the town's directory as JSON: name, occupation, lives_in.")
    s += rx.assistant(rx.gen("entry", json_schema=Entry, max_tokens=80, temperature=0))


@dataclass
class Account:
    """What one interview came to. Times in seconds."""

    prompt: int
    reused: int
    first_tokens: list[float]
    answer: str
    entry: Entry

    @property
    def computed(self) -> int:
        return self.prompt - self.reused


@dataclass
class Interviews:
    """What some interviews, held at once, came to."""

    accounts: list[Account]
    seconds: float

    @property
    def prompt(self) -> int:
        return sum(account.prompt for account in self.accounts)

    @property
    def reused(self) -> int:
        return sum(account.reused for account in self.accounts)

    @property
    def milliseconds_a_prompt_token(self) -> float:
        return self.seconds / self.prompt * 1000


def hold_interviews(count: int, *, prefix_cache: bool, model: str) -> Interviews:
    """The first `count` at once on a runtime of their own, nothing warmed up before."""
    with rx.Runtime(model, prefix_cache=prefix_cache) as runtime:
        start = time.perf_counter()
        states = interview.run_batch(
            [{"person": person, "questions": asked} for person, asked in islice(INTERVIEWS.items(), count)],
            backend=runtime,
            progress_bar=True,
        )
        return Interviews([account(state) for state in states], time.perf_counter() - start)


def account(state: rx.ProgramState) -> Account:
    """Sum up a finished interview. Raises what a generation failed with, and `ValidationError` for a wrong entry."""
    turns = [state.get_meta_info(name) for name in ("answer 0", "answer 1", "entry")]
    return Account(
        prompt=sum(turn["prompt_tokens"] for turn in turns),
        reused=sum(turn["cached_tokens"] for turn in turns),
        first_tokens=[turn["time_to_first_token"] for turn in turns],
        answer=state["answer 0"].strip(),
        entry=Entry.model_validate_json(state["entry"]),
    )


def table(interviews: Interviews) -> Table:
    """A row an agent: what its prompts took, and its last answer."""
    shown = Table(title="Prompt tokens of three turns, median seconds to an answer's first token, and what was said")
    shown.add_column("")
    for heading in ("computed", "reused", "first token"):
        shown.add_column(heading, justify="right")
    shown.add_column("says")
    shown.add_column("entry in the directory", overflow="fold")
    for person, account in zip(INTERVIEWS, interviews.accounts, strict=False):
        shown.add_row(
            person.split(",")[0],
            f"{account.computed:,}",
            f"{account.reused:,}",
            f"{median(account.first_tokens):.2f} s",
            shorten(account.answer, 70),
            account.entry.model_dump_json(),
        )
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description="Ten agents over one shared setting: what the prefix cache saves.")
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--without-cache", type=int, default=1, metavar="N", help="agents run without the cache too")
    options = parser.parse_args()

    console = Console(width=150)
    console.print("[bold]Ten agents, one setting, three turns each, the last answer a JSON object ...")
    cached = hold_interviews(len(INTERVIEWS), prefix_cache=True, model=options.model)
    console.print(table(cached))
    console.print(
        f"{len(cached.accounts)} entries, each validated by the Pydantic model. {cached.reused / cached.prompt:.1%} of "
        f"all {cached.prompt:,} prompt tokens were served from the cache."
    )
    if options.without_cache < 1:
        return
    console.print(f"[bold]... and the first {options.without_cache} of them with every prompt computed whole.")
    plain = hold_interviews(options.without_cache, prefix_cache=False, model=options.model)
    for name, held in (("with the cache", cached), ("without it", plain)):
        console.print(
            f"{name}: {len(held.accounts)} agents, {held.prompt:,} prompt tokens in {held.seconds:.1f} s, "
            f"{held.milliseconds_a_prompt_token:.2f} ms a prompt token"
        )
    console.print("(Both times include the generation of the answers, which no prefix cache makes shorter.)")


if __name__ == "__main__":
    main()
