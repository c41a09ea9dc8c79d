"""`radixrt doctor`: what this machine has, and what radixrt makes of it."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from radixrt.cli.options import (
    DeviceOption,
    DtypeOption,
    KernelsOption,
    KvDtypeOption,
    ModelOption,
    WeightsDtypeOption,
)
from radixrt.config import DEFAULT_MODEL

if TYPE_CHECKING:
    from radixrt.cli.checks.finding import Finding
    from radixrt.config import WorkerConfig

_COLOURS = {"ok": typer.colors.GREEN, "note": typer.colors.YELLOW, "problem": typer.colors.RED}


def doctor(
    model: ModelOption = DEFAULT_MODEL,
    kernels: KernelsOption = "auto",
    dtype: DtypeOption = "auto",
    kv_dtype: KvDtypeOption = "auto",
    weights_dtype: WeightsDtypeOption = "auto",
    device: DeviceOption = "cpu",
    as_json: Annotated[bool, typer.Option("--json", help="print a JSON object instead of lines")] = False,
) -> None:
    """Say what this machine has, which kernels and grammars are used and why, and whether a model fits.

    Nothing is fetched, and no model is loaded. Each line says ok, note (good to know) or problem.

    The exit status is 1 if there is a problem, else 0.

    Examples:

      radixrt doctor
      radixrt doctor --model ~/models/Qwen3-0.6B --dtype float32
      radixrt doctor --json | jq '.findings[] | select(.status == "problem")'
    """
    import msgspec

    from radixrt.config import WorkerConfig

    config = WorkerConfig(
        model=model,
        kernels=kernels,
        dtype=dtype,  # type: ignore[arg-type]  # checked where the kernels are
        kv_dtype=kv_dtype,  # type: ignore[arg-type]
        weights_dtype=weights_dtype,  # type: ignore[arg-type]
        device=device,
    )
    findings: list[Finding] = []
    for finding in examine(config):
        findings.append(finding)
        if not as_json:
            _print(finding)
    problems = sum(finding.status == "problem" for finding in findings)
    if as_json:
        report = msgspec.json.encode({"problems": problems, "findings": findings})
        typer.echo(msgspec.json.format(report, indent=2))
    elif problems:
        typer.secho(f"{problems} problem{'s' if problems > 1 else ''}", fg=_COLOURS["problem"])
    if problems:
        raise typer.Exit(1)


def examine(config: WorkerConfig) -> Iterator[Finding]:
    """Everything that is looked at, in the order in which one thing rests on another."""
    from radixrt.cli.checks.machine import check_machine
    from radixrt.cli.checks.model import check_model, check_models_folder
    from radixrt.cli.checks.runtime import check_runtime, missing_modules

    yield from check_machine()
    yield from check_runtime(config)
    if not missing_modules():
        yield from check_models_folder()
        yield from check_model(config)


def _print(finding: Finding) -> None:
    status = typer.style(f"{finding.status:8}", fg=_COLOURS[finding.status])
    width = max(40, shutil.get_terminal_size().columns - 24)
    first, *rest = textwrap.wrap(finding.text, width, break_on_hyphens=False, break_long_words=False) or [""]
    typer.echo(f"{status} {finding.topic:14} {first}")
    for line in rest:
        typer.echo(" " * 24 + line)
