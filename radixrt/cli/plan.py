"""`radixrt plan`: how many requests of a model a device's memory holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from radixrt.cli.options import PageSizeOption

if TYPE_CHECKING:
    from rich.table import Table

    from radixrt.model.capacity import Capacity, Demand
    from radixrt.model.config import ModelConfig

_TABLE_WIDTH = 100


def plan(
    model: Annotated[
        str,
        typer.Option(
            "--model", metavar="MODEL", help="a config.json or its folder, a .gguf file, a hub name, or a name below"
        ),
    ],
    memory: Annotated[str, typer.Option(metavar="AMOUNT", help="of the device, as in 141GB or 80GiB")],
    context: Annotated[
        int | None, typer.Option(metavar="TOKENS", help="longest request; by default the model's own limit")
    ] = None,
    tokens: Annotated[
        int | None, typer.Option(metavar="TOKENS", help="of an average request at its end; by default half the context")
    ] = None,
    shared: Annotated[int, typer.Option(metavar="TOKENS", help="prefix of these that all requests share")] = 0,
    concurrency: Annotated[
        int | None, typer.Option(metavar="N", help="say what memory so many of the longest requests need")
    ] = None,
    page_size: PageSizeOption = 16,
    step_tokens: Annotated[int, typer.Option(metavar="TOKENS", help="most tokens of one step")] = 8192,
    max_running: Annotated[int, typer.Option(metavar="N", help="most requests in one step")] = 256,
    share: Annotated[float, typer.Option(metavar="0..1", help="of the memory that radixrt may take")] = 0.9,
    as_json: Annotated[bool, typer.Option("--json", help="print a JSON object instead of a table")] = False,
) -> None:
    """Say what a device's memory holds: weights, workspace, KV pages, and how many requests at once.

    Beside it, how many there would be if each request had one contiguous reservation of the whole context length. No
    weights are needed and nothing is loaded: docs/gpu.md has the formula.

    Names: llama-3.1-8b, llama-3.1-70b, llama-3.2-1b, llama-3.2-3b, llama-2-7b, mistral-7b, qwen2.5-7b, qwen3-8b,
    qwen3-32b, smollm2-135m.

    Exit status: 0 if a request of the whole context length fits in some precision, else 1.

    \b
    Examples:
      radixrt plan --model llama-3.1-8b --memory 141GB --context 8192
      radixrt plan --model llama-3.1-8b --memory 24GiB --context 8192 --tokens 1500 --shared 1000
      radixrt plan --model ~/models/Qwen3-0.6B/config.json --memory 24GiB --concurrency 64
    """
    from radixrt.cli.amounts import parse_bytes
    from radixrt.model.capacity import PRECISIONS, Demand, plan_capacity
    from radixrt.model.describe import config_named

    device = parse_bytes(memory, "memory")
    config = config_named(model)
    if context is None:
        context = config.max_positions
    demand = Demand(
        memory=device,
        context=context,
        tokens=max(1, context // 2) if tokens is None else tokens,
        shared=shared,
        concurrency=concurrency,
        page_size=page_size,
        step_tokens=step_tokens,
        max_running=max_running,
        share=share,
    )
    capacities = [plan_capacity(config, demand, precision) for precision in PRECISIONS]
    if as_json:
        _print_json(model, demand, capacities)
    else:
        _print_table(model, config, demand, capacities)
    if not any(capacity.full_requests for capacity in capacities):
        raise typer.Exit(1)


def _print_json(model: str, demand: Demand, capacities: Sequence[Capacity]) -> None:
    import msgspec

    report = {"model": model, "demand": demand, "capacities": capacities}
    typer.echo(msgspec.json.format(msgspec.json.encode(report), indent=2))


def _print_table(model: str, config: ModelConfig, demand: Demand, capacities: Sequence[Capacity]) -> None:
    from rich.console import Console

    from radixrt.model.tensors import parameters

    # A narrow terminal breaks the lines; cut numbers would be worse.
    console = Console(width=max(Console().width, _TABLE_WIDTH))
    console.print(
        f"{model}: {config.layers} layers, {config.kv_heads} KV heads of {config.head_dim}, "
        f"{parameters(config) / 1e6:,.0f} M parameters",
        highlight=False,
        soft_wrap=True,
    )
    console.print(_table(demand, capacities))
    if not any(capacity.full_requests for capacity in capacities):
        console.print(f"not one request of {demand.context:,} tokens fits", highlight=False)


def _table(demand: Demand, capacities: Sequence[Capacity]) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from radixrt.cli.amounts import gigabytes

    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("", no_wrap=True)
    for capacity in capacities:
        table.add_column(capacity.precision, justify="right", no_wrap=True)

    def row(name: str, value: Callable[[Capacity], str], ends_section: bool = False) -> None:
        table.add_row(name, *map(value, capacities), end_section=ends_section)

    row(f"{demand.share:.0%} of {gigabytes(demand.memory)}", lambda _: gigabytes(int(demand.memory * demand.share)))
    row("- weights", lambda found: gigabytes(found.weights))
    row("- workspace of a step", lambda found: gigabytes(found.workspace))
    row("= KV pool", lambda found: gigabytes(found.pool), ends_section=True)
    row("KV bytes of a token", lambda found: f"{found.token_bytes:,}")
    row(f"pages of {demand.page_size} tokens", lambda found: f"{found.pages:,}")
    row("tokens", lambda found: f"{found.pages * demand.page_size:,}", ends_section=True)
    shared = f", {demand.shared:,} of them shared" if demand.shared else ""
    row(f"requests at once, {demand.context:,} tokens each", lambda found: f"{found.full_requests:,}")
    row(f"requests at once, {demand.tokens:,} tokens each{shared}", lambda found: f"{found.requests:,}")
    row("  left empty of the slots they take", lambda found: f"{found.page_waste:.2%}")
    row("  with one contiguous reservation each", lambda found: f"{found.reserved_requests:,}")
    row("  left empty of the slots they would take", lambda found: f"{found.reservation_waste:.2%}")
    if demand.concurrency is not None:
        table.add_section()
        row(
            f"memory for {demand.concurrency:,} requests of {demand.context:,} tokens",
            lambda found: gigabytes(found.needed or 0),
        )
    return table
