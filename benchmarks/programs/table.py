"""What was measured, for people."""

from __future__ import annotations

from rich.table import Table

from benchmarks.programs.measure import COMPARED, PARTS, Measured

_CLOSE = 1.01
"""Within one percent of the bound."""
_GOOD = 1.15


def empty_table(runs: int, at_once: int, seed: int) -> Table:
    """A table with a column for each setup and a row for each shape and size of the pool."""
    table = Table(
        title=f"Rows written, as a multiple of the offline bound: {runs} runs, {at_once} at once, seed {seed}",
        caption="bound: distinct (prefix, token) pairs, and a row for each prompt wholly cached. no reuse: every "
        "request computes all of its tokens. pool: of the working set. -: the pool does not hold the longest request",
    )
    table.add_column("shape")
    for name in ("bound", "no reuse", "pool", "pages"):
        table.add_column(name, justify="right")
    for policies in COMPARED:
        table.add_column(f"{policies.schedule}\n{policies.eviction}", justify="right")
    return table


def add_rows(table: Table, measured: Measured) -> None:
    """Put one shape at the end of the table."""
    bound = measured.bound
    for part in PARTS:
        first = part == PARTS[0]
        names = (measured.shape, f"{bound.rows:,}", f"{bound.fed / bound.rows:.2f}") if first else ("", "", "")
        cells = [_cell(measured, part, index) for index in range(len(COMPARED))]
        pages = int(bound.pages * part)
        table.add_row(*names, f"{part:.0%}", f"{pages:,}", *cells, end_section=part == PARTS[-1])


def _cell(measured: Measured, part: float, index: int) -> str:
    policies = COMPARED[index]
    if (part, policies) not in measured.outcomes:
        return "" if part == 1 and index else "-"
    ratio = measured.ratio(part, policies)
    style = "green" if ratio <= _CLOSE else "default" if ratio <= _GOOD else "red"
    return f"[{style}]{ratio:.3f}[/]"
