"""`radixrt simulate`: a trace replayed against the cache and the scheduler, without a model."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from radixrt.errors import InvalidRequest

if TYPE_CHECKING:
    from rich.table import Table

    from radixrt.simulate.costs import CostModel
    from radixrt.simulate.report import Report
    from radixrt.simulate.setups import Machine, Setup
    from radixrt.simulate.source import Source
    from radixrt.simulate.trace import Trace

_TABLE_WIDTH = 100


def simulate(
    trace: Annotated[
        Path | None, typer.Argument(metavar="[TRACE]", help="JSON lines: Mooncake's format, or ours with token ids")
    ] = None,
    generate: Annotated[
        str | None, typer.Option(metavar="KIND", help="no file: few-shot, chat, tree-of-thought, agents or tenants")
    ] = None,
    requests: Annotated[int, typer.Option(metavar="N", min=1, help="how many to generate")] = 5000,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="of what is generated")] = 0,
    rate: Annotated[float, typer.Option(metavar="N", help="generated requests a second")] = 10.0,
    save_trace: Annotated[
        Path | None, typer.Option(metavar="FILE.jsonl", help="write what is generated, to be given as TRACE later")
    ] = None,
    reuse: Annotated[
        list[str], typer.Option(metavar="NAME", help="none, blocks, radix-1, radix-16, radix-64; several are compared")
    ] = [],  # noqa: B006
    schedule: Annotated[
        list[str], typer.Option(metavar="NAME", help="lpm, fcfs, dfs, priority, program; several are compared")
    ] = [],  # noqa: B006
    eviction: Annotated[
        list[str], typer.Option(metavar="NAME", help="lru, lfu, fifo, program; several are compared")
    ] = [],  # noqa: B006
    compare: Annotated[bool, typer.Option("--compare", help="compare all there are of each")] = False,
    plot: Annotated[Path | None, typer.Option(metavar="FILE.png", help="a picture of the result (matplotlib)")] = None,
    processes: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="for a comparison; by default one a processor")
    ] = None,
    cache_tokens: Annotated[int, typer.Option(metavar="TOKENS", min=1, help="that the KV pool holds")] = 400_000,
    max_running: Annotated[int, typer.Option(metavar="N", min=1, help="requests in the batch")] = 64,
    step_tokens: Annotated[int, typer.Option(metavar="TOKENS", min=1, help="of one step")] = 2048,
    cost_step: Annotated[float, typer.Option(metavar="SECONDS", min=0, help="of every step")] = 0.008,
    cost_prefill: Annotated[float, typer.Option(metavar="SECONDS", min=0, help="of a prefill token")] = 50e-6,
    cost_decode: Annotated[float, typer.Option(metavar="SECONDS", min=0, help="of a decode row")] = 20e-6,
    cost_context: Annotated[float, typer.Option(metavar="SECONDS", min=0, help="of a context token read")] = 65e-9,
) -> None:
    """Replay requests against the cache and the scheduler, with a cost model instead of a model.

    Says how many prompt tokens came from the cache, beside what a cache that never forgets would give; the times to the
    first token in simulated seconds; tokens computed and evicted; preemptions. A comparison varies one thing at a time
    and keeps the first of the others. docs/simulator.md has the formats and what the names mean.

    \b
    Examples:
      radixrt simulate conversation_trace.jsonl --cache-tokens 3000000
      radixrt simulate --generate agents --requests 20000 --rate 15
      radixrt simulate --generate chat --cache-tokens 100000 --eviction lru --eviction program
      radixrt simulate --generate tenants --compare --plot tenants.png
      radixrt simulate --generate agents --save-trace agents.jsonl
    """
    from rich.console import Console

    from radixrt.cache.eviction import POLICIES
    from radixrt.scheduler.policy import SCHEDULE_POLICIES
    from radixrt.simulate.costs import CostModel
    from radixrt.simulate.plot import check_plot
    from radixrt.simulate.plot import plot as write_plot
    from radixrt.simulate.setups import REUSES, Machine, comparison
    from radixrt.simulate.writing import write_trace

    if plot is not None:
        check_plot(plot)
    setups = comparison(
        reuse or (list(REUSES) if compare else ["radix-16"]),
        schedule or (list(SCHEDULE_POLICIES) if compare else ["lpm"]),
        eviction or (list(POLICIES) if compare else ["lru"]),
    )
    source = _source(trace, generate, requests, seed, rate)
    machine = Machine(cache_tokens, max_running, step_tokens)
    costs = CostModel(cost_step, cost_prefill, cost_decode, cost_context)
    if save_trace is not None and generate is None:
        raise InvalidRequest("save_trace is for what --generate makes; a TRACE is a file already", field="save_trace")
    loaded = source.load()
    if save_trace is not None:
        write_trace(save_trace, loaded)
    reports, reusable = _replay(source, loaded, setups, machine, costs, processes or os.cpu_count() or 1)
    count = len(loaded)
    prompts = sum(len(request.prompt) for request in loaded)
    outputs = sum(len(request.output) for request in loaded)
    optimum = reusable / prompts
    # A narrow terminal breaks the lines; cut numbers would be worse.
    console = Console(width=max(Console().width, _TABLE_WIDTH))
    console.print(
        f"{count} requests, {prompts / count:.0f} tokens in and {outputs / count:.0f} out on average; "
        f"a cache that never forgets: {optimum:.2%} of the prompt tokens",
        highlight=False,
        soft_wrap=True,
    )
    console.print(_table(setups, reports, optimum))
    if plot is not None:
        write_plot(plot, setups, reports, optimum)
        console.print(f"written: {plot}", highlight=False, soft_wrap=True)


def _source(trace: Path | None, generate: str | None, requests: int, seed: int, rate: float) -> Source:
    from radixrt.simulate.source import Generated, TraceFile

    if (trace is None) == (generate is None):
        raise InvalidRequest("give either a TRACE or --generate KIND", field="trace")
    return Generated(generate, requests, seed, rate) if generate is not None else TraceFile(trace or Path())


def _replay(
    source: Source, trace: Trace, setups: Sequence[Setup], machine: Machine, costs: CostModel, processes: int
) -> tuple[list[Report], int]:
    """The reports, and the tokens that could be reused at most; with a bar for each, on standard error."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from radixrt.simulate.compare import compare
    from radixrt.simulate.optimum import reusable_tokens
    from radixrt.simulate.simulation import Simulation

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        tasks = [progress.add_task(setup.name, total=len(trace)) for setup in setups]
        best = progress.add_task("the optimum", total=len(trace))

        def show(place: int, ended: int) -> None:
            progress.update(tasks[place], completed=ended)

        if len(setups) == 1:
            reports = [Simulation(trace, setups[0], machine, costs).run(partial(show, 0))]
        else:
            reports = compare(source, setups, machine, costs, processes, show)
        return reports, reusable_tokens(trace, lambda counted: progress.update(best, completed=counted))


def _table(setups: Sequence[Setup], reports: Sequence[Report], optimum: float) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("setup", no_wrap=True)
    for name in ("hit %", "of best", "p50 s", "p90 s", "p99 s", "computed", "evicted", "preempt"):
        table.add_column(name, justify="right", no_wrap=True)
    for setup, report in zip(setups, reports, strict=True):
        table.add_row(
            setup.name,
            f"{100 * report.hit_rate:.2f}",
            f"{100 * report.hit_rate / optimum:.1f}" if optimum else "-",
            *(f"{seconds:.3f}" for seconds in (report.ttft_p50, report.ttft_p90, report.ttft_p99)),
            *(str(count) for count in (report.computed_tokens, report.evicted_tokens, report.preemptions)),
        )
    return table
