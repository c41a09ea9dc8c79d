"""`radixrt run`: a program of a file, and its finished tree."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from radixrt.client.runtime import Runtime
from radixrt.config import DEFAULT_MODEL
from radixrt.errors import InvalidRequest
from radixrt.lang import ProgramState, render_rich
from radixrt.lang.function import Program


def run(
    program: Annotated[str, typer.Argument(metavar="FILE.py:PROGRAM", help="a function decorated with @function")],
    arg: Annotated[
        list[str], typer.Option(metavar="NAME=VALUE", help="an argument of the program; JSON where it parses as such")
    ] = [],  # noqa: B006
    model: Annotated[str, typer.Option(help="a folder, a .gguf file, a hub name or smollm2-135m")] = DEFAULT_MODEL,
    kernels: Annotated[str, typer.Option(help="kernel backend")] = "auto",
    dtype: Annotated[str, typer.Option(help="of activations and KV: auto, float32 or bfloat16")] = "auto",
    page_size: Annotated[int, typer.Option(help="tokens a page; a power of two")] = 16,
    context_length: Annotated[int | None, typer.Option(help="longest sequence in tokens")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="for generations that name no limit of their own")] = None,
    temperature: Annotated[float | None, typer.Option(help="for generations that name none of their own")] = None,
) -> None:
    """Run a program and print its finished tree: each node's text, the tokens computed for it and those reused.

    Example: radixrt run examples/postcards.py:postcards --arg town=Oslo
    """
    from rich.console import Console  # slow to import; help and errors do without

    given = {"max_tokens": max_tokens, "temperature": temperature}
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    function = load_program(program)
    arguments = parse_arguments(arg)
    runtime = Runtime(
        model,
        kernels=kernels,
        dtype=dtype,  # type: ignore[arg-type]  # checked by the configuration
        page_size=page_size,
        context_length=context_length,
    )
    with runtime:
        state = function.run(backend=runtime, **arguments, **options)
        state.sync()
        Console().print(render_rich(function.name, state.tree()))
        _raise_error(state)


def load_program(reference: str) -> Program:
    """The program that `FILE.py:PROGRAM` names; raises `InvalidRequest` if there is none."""
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
    if not isinstance(program, Program):
        known = ", ".join(sorted(key for key, value in vars(module).items() if isinstance(value, Program)))
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
        except json.JSONDecodeError:
            arguments[name] = value
    return arguments


def _raise_error(state: ProgramState) -> None:
    error = state.error()
    if error is not None:
        raise error
