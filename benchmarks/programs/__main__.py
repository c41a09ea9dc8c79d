"""`python -m benchmarks.programs`: the table of shapes, pool sizes and policies."""

from __future__ import annotations

import argparse
import os

from rich.console import Console
from rich.progress import track

from benchmarks.programs.measure import measure_all
from benchmarks.programs.replay import AT_ONCE
from benchmarks.programs.shapes import SHAPES
from benchmarks.programs.table import add_rows, empty_table


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.programs",
        description="Rows that each policy makes the kernels compute for programs of the SGLang paper's shapes.",
    )
    parser.add_argument("shapes", nargs="*", help=f"of: {', '.join(SHAPES)} (default: all)")
    parser.add_argument("--runs", type=int, default=48, help="runs of each shape")
    parser.add_argument("--at-once", type=int, default=AT_ONCE, help="runs that are open at once")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    chosen = parser.parse_args()
    unknown = [name for name in chosen.shapes if name not in SHAPES]
    if unknown:
        parser.error(f"no shape is called {', '.join(map(repr, unknown))}; there are: {', '.join(SHAPES)}")
    for option in ("runs", "at_once", "processes"):
        if getattr(chosen, option) < 1:
            parser.error(f"{option.replace('_', '-')} must be at least 1")
    names = chosen.shapes or list(SHAPES)

    console = Console()
    table = empty_table(chosen.runs, chosen.at_once, chosen.seed)
    measured = measure_all(names, chosen.runs, chosen.seed, chosen.at_once, chosen.processes)
    for one in track(measured, total=len(names), description="shapes", console=console, transient=True):
        add_rows(table, one)
    console.print(table)


if __name__ == "__main__":
    main()
