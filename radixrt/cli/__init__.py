"""The shell: `radixrt COMMAND`. One module a command; a command's docstring is its help.

A command's module imports nothing heavy at its top, so that help is quick and is there in the base install too.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from radixrt import __version__
from radixrt.cli.chat import chat
from radixrt.cli.doctor import doctor
from radixrt.cli.extras import missing_extra
from radixrt.cli.grammar import grammar
from radixrt.cli.plan import plan
from radixrt.cli.run import run
from radixrt.cli.serve import serve
from radixrt.cli.simulate import simulate
from radixrt.errors import RadixError

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"radixrt {__version__}")
        raise typer.Exit


@app.callback()
def radixrt(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """A structured-generation runtime: programs become request trees over a radix prefix cache."""


app.command(no_args_is_help=True)(run)
app.command()(serve)
app.command()(chat)
app.command()(doctor)
app.command(no_args_is_help=True)(simulate)
app.command(no_args_is_help=True)(plan)
app.add_typer(grammar, name="grammar")


def main() -> None:
    """Entry point of the `radixrt` command: a mistake of the user's is told in one line, with exit status 1."""
    try:
        app()
    except RadixError as error:
        sys.exit(f"radixrt: {error}")
    except ModuleNotFoundError as error:
        message = missing_extra(error)
        if message is None:
            raise
        sys.exit(f"radixrt: {message}")
