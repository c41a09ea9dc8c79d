"""A JSON object over HTTP, from a server that knows OpenAI's routes: the `openai` client and a Pydantic model.

The server holds the model to the schema token by token, so what comes back always parses. Without `--url` the
example starts a server of its own at any free port, and ends it afterwards.

    python examples/json_over_http.py
    python examples/json_over_http.py --url http://127.0.0.1:30000
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from openai import OpenAI
from pydantic import BaseModel, ConfigDict, Field
from rich import print

REPORT = (
    "On Tuesday the fishing boat Constance came home with 340 boxes of herring. Her captain is Hanna Skye. "
    "She lies at the North Pier."
)


class Boat(BaseModel):
    """What we want to know. The members are generated in this order."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(max_length=30)
    captain: str = Field(max_length=30)
    boxes: int = Field(ge=0, le=9999)
    pier: Literal["North Pier", "South Pier"]
    catch: list[Literal["cod", "haddock", "mackerel", "herring"]] = Field(min_length=1, max_length=2)


@contextmanager
def serving(model: str) -> Iterator[str]:
    """The URL of a server that lives for as long as the `with`."""
    command = [sys.executable, "-m", "radixrt", "serve", "--model", model, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            ready = server.stdout.readline()
            if not ready:
                sys.exit("The server ended before it was ready; above it says why.")
            yield ready.split()[-1]
        finally:
            server.terminate()


def read_report(url: str) -> Boat:
    """The report as a `Boat`: the one call that matters."""
    with OpenAI(base_url=f"{url}/v1", api_key="none") as client:
        answer = client.chat.completions.parse(
            model=client.models.list().data[0].id,
            messages=[
                {"role": "system", "content": "Write down what the report says about the boat, as JSON."},
                {"role": "user", "content": REPORT},
            ],
            response_format=Boat,
            temperature=0,
            max_tokens=120,
        )
    boat = answer.choices[0].message.parsed
    assert boat is not None
    return boat


def main() -> None:
    parser = argparse.ArgumentParser(description="Ask a server for a JSON object.")
    parser.add_argument("--url", help="of a server that runs already; by default one is started")
    parser.add_argument("--model", default="smollm2-135m", help="what to start it with")
    options = parser.parse_args()
    if options.url:
        show(options.url)
    else:
        with serving(options.model) as url:
            show(url)


def show(url: str) -> None:
    print(f"[bold]{url}[/bold]: {REPORT}")
    start = time.perf_counter()
    boat = read_report(url)
    print(boat)
    print(f"Parsed and validated by Pydantic, {time.perf_counter() - start:.1f} s.")


if __name__ == "__main__":
    main()
