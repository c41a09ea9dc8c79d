"""`radixrt run`: a program of a file, and its finished tree."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from radixrt.cli.options import (
    ActivationsOption,
    ContextLengthOption,
    DeviceOption,
    DtypeOption,
    KernelsOption,
    KvDtypeOption,
    ModelOption,
    PageSizeOption,
    WeightsDtypeOption,
)
from radixrt.config import DEFAULT_MODEL
from radixrt.errors import InvalidRequest

if TYPE_CHECKING:
    from radixrt.lang import AnyProgram, ProgramState


def run(
    program: Annotated[str, typer.Argument(metavar="FILE.py:PROGRAM", help="a function decorated with @function")],
    arg: Annotated[
        list[str], typer.Option(metavar="NAME=VALUE", help="an argument of the program; JSON where it parses as such")
    ] = [],  # noqa: B006
    model: ModelOption = DEFAULT_MODEL,
    kernels: KernelsOption = "auto",
    dtype: DtypeOption = "auto",
    activations: ActivationsOption = "auto",
    kv_dtype: KvDtypeOption = "auto",
    weights_dtype: WeightsDtypeOption = "auto",
    device: DeviceOption = "cpu",
    page_size: PageSizeOption = 16,
    context_length: ContextLengthOption = None,
    max_tokens: Annotated[
        int | None, typer.Option(metavar="TOKENS", help="for generations that name no limit of their own")
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(metavar="NUMBER", help="for generations that name none of their own; 0 is greedy")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="draw what the program would ask, without a model, as far as it is known")
    ] = False,
    svg: Annotated[
        Path | None, typer.Option(metavar="FILE", dir_okay=False, help="write the drawing to this file, too")
    ] = None,
) -> None:
    """Run a program and print its finished tree: each node's text, the tokens computed for it and those reused.

    With --dry-run the body runs too, but nothing is generated: it stops where it reads a generated value. Arguments
    that are not given are shown as {name}.

    Examples:

      radixrt run examples/few_shot_agents.py:interview --arg person="Marta Lind" --arg questions='["Why rye?"]'
      radixrt run poems.py:poem --arg topic=rain --model ~/models/Qwen3-0.6B --temperature 0

      radixrt run poems.py:poem --dry-run --svg poem.svg
    """
    from rich.console import Console

    from radixrt.lang import render_rich, render_svg

    given = {"max_tokens": max_tokens, "temperature": temperature}
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    function = load_program(program)
    arguments = parse_arguments(arg)
    if dry_run:
        trace = function.trace(**arguments, **options)
        Console().print(render_rich(function.name, trace.tree))
        Console().print(f"stopped: {trace.stopped}" if trace.stopped else "complete", markup=False)
        if svg is not None:
            svg.write_text(trace.svg(), encoding="utf-8")
        return

    from radixrt.client.runtime import Runtime

    runtime = Runtime(
        model,
        kernels=kernels,
        dtype=dtype,  # type: ignore[arg-type]  # checked by the configuration
        activations=activations,  # type: ignore[arg-type]
        kv_dtype=kv_dtype,  # type: ignore[arg-type]
        weights_dtype=weights_dtype,  # type: ignore[arg-type]
        device=device,
        page_size=page_size,
        context_length=context_length,
    )
    with runtime:
        state = function.run(backend=runtime, **arguments, **options)
        state.sync()
        Console().print(render_rich(function.name, state.tree()))
        if svg is not None:
            svg.write_text(render_svg(function.name, state.tree()), encoding="utf-8")
        _raise_error(state)


def load_program(reference: str) -> AnyProgram:
    """The program that `FILE.py:PROGRAM` names; raises `InvalidRequest` if there is none."""
    from radixrt.lang import AnyProgram

    file, colon, name = reference.rpartition(":")
    path = Path(file)
    if not colon or not path.is_file():
        raise InvalidRequest(f"{reference!r} names no program; write FILE.py:PROGRAM with a file that exists")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise InvalidRequest(f"{file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    # As for a script: the file may import its neighbours, and dataclasses in it find their module.
    sys.path.insert(0, str(path.parent.resolve()))
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    program = getattr(module, name, None)
    if not isinstance(program, AnyProgram):
        known = ", ".join(sorted(key for key, value in vars(module).items() if isinstance(value, AnyProgram)))
        raise InvalidRequest(f"{file} has no program {name!r}; it has: {known or 'none'}")
    return program


def parse_arguments(pairs: list[str]) -> dict[str, Any]:
    """`NAME=VALUE` pairs as keyword arguments; a value that is JSON is read as such, any other is a string."""
    arguments: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.isidentifier():
            raise InvalidRequest(f"--arg {pair!r} is not NAME=VALUE", field="arg")
        try:
            arguments[name] = json.loads(value)
        except ValueError:  # a number of thousands of digits is refused as another kind of it
            arguments[name] = value
    return arguments


def _raise_error(state: ProgramState) -> None:
    error = state.error()
    if error is not None:
        raise error
