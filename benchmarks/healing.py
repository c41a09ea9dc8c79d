"""When token healing helps: capitals that the model names behind prompts that end in different places.

    python -m benchmarks.healing [--model smollm2-135m]

Each prompt asks for the capital of a country, greedily, once with `heal=False` and once with `heal=True`. It ends with
a word, with a space, or in the middle of the answer. A line says how many of the answers begin with the capital.
"""

from __future__ import annotations

import argparse

import radixrt as rx
from radixrt.lang import ProgramState

SHOTS = {"Brazil": "Brasilia", "Mali": "Bamako"}
CAPITALS = {
    "Austria": "Vienna",
    "Belgium": "Brussels",
    "Bulgaria": "Sofia",
    "Chile": "Santiago",
    "China": "Beijing",
    "Cuba": "Havana",
    "Denmark": "Copenhagen",
    "Egypt": "Cairo",
    "Finland": "Helsinki",
    "France": "Paris",
    "Germany": "Berlin",
    "Greece": "Athens",
    "Hungary": "Budapest",
    "India": "New Delhi",
    "Indonesia": "Jakarta",
    "Iran": "Tehran",
    "Iraq": "Baghdad",
    "Ireland": "Dublin",
    "Italy": "Rome",
    "Japan": "Tokyo",
    "Kenya": "Nairobi",
    "Mexico": "Mexico City",
    "Norway": "Oslo",
    "Peru": "Lima",
    "Poland": "Warsaw",
    "Portugal": "Lisbon",
    "Romania": "Bucharest",
    "Russia": "Moscow",
    "Spain": "Madrid",
    "Sweden": "Stockholm",
    "Syria": "Damascus",
    "Thailand": "Bangkok",
    "Turkey": "Ankara",
    "Ukraine": "Kyiv",
    "United Kingdom": "London",
    "Vietnam": "Hanoi",
}
LETTERS = range(1, 5)
"""How many letters of the answer stand in a prompt that ends in the middle of it."""


@rx.function
def capital(s: ProgramState, country: str, given: str, heal: bool) -> None:
    """`given`: what of the answer stands in the prompt."""
    for shot, answer in SHOTS.items():
        s += f"Country: {shot}\nCapital: {answer}\n"
    s += f"Country: {country}\nCapital:{given}"
    s += rx.gen("rest", max_tokens=8, stop="\n", temperature=0, heal=heal)


def right_answers(runtime: rx.Runtime, given: dict[str, str], heal: bool) -> int:
    """How many answers begin with the capital. `given` has by country what of its answer stands in the prompt."""
    states = capital.run_batch([(country, start, heal) for country, start in given.items()], backend=runtime)
    answers = zip(states, given.items(), strict=True)
    return sum((start + state["rest"]).lstrip().startswith(CAPITALS[country]) for state, (country, start) in answers)


def main() -> None:
    """Ask, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    model = parser.parse_args().model
    endings = {"a word": dict.fromkeys(CAPITALS, ""), "a space": dict.fromkeys(CAPITALS, " ")}
    for letters in LETTERS:
        endings[f"{letters} of its letters"] = {country: f" {city[:letters]}" for country, city in CAPITALS.items()}
    with rx.Runtime(model, context_length=1024) as runtime:
        print(f"{'the prompt ends with':22}{'heal=False':>12}{'heal=True':>12}   of {len(CAPITALS)}")
        for ending, given in endings.items():
            plain, healed = (right_answers(runtime, given, heal) for heal in (False, True))
            print(f"{ending:22}{plain:12}{healed:12}")


if __name__ == "__main__":
    main()
