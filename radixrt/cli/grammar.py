"""`radixrt grammar check`: what a schema or a pattern allows, without any model."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from radixrt.errors import InvalidConstraint

if TYPE_CHECKING:
    from radixrt.grammar.verdict import Verdict

grammar = typer.Typer(no_args_is_help=True, help="Try constraints without a model.")

_WIDTH = 72
"""Bytes of a text that are shown around the place where it is rejected."""


class _Backend(StrEnum):
    AUTO = "auto"
    LLGUIDANCE = "llguidance"
    OUTLINES_CORE = "outlines-core"


@grammar.callback()
def _several_commands() -> None:
    """Keeps `check` a command of its own although it is the only one."""


@grammar.command(no_args_is_help=True)
def check(
    schema: Annotated[str, typer.Argument(metavar="SCHEMA", help="a file, or JSON text; with --regex a pattern")],
    instance: Annotated[list[str], typer.Argument(metavar="INSTANCE...", help="files, or JSON texts")],
    regex: Annotated[bool, typer.Option("--regex", help="SCHEMA is a regular expression, INSTANCE plain text")] = False,
    verbatim: Annotated[
        bool, typer.Option("--verbatim", help="keep the white space between an instance's JSON tokens")
    ] = False,
    backend: Annotated[_Backend, typer.Option(help="grammar backend")] = _Backend.AUTO,
    model: Annotated[str | None, typer.Option(help="a model whose vocabulary is used; by default the bytes")] = None,
) -> None:
    """Say of each INSTANCE whether generation under SCHEMA could write it, and if not, from which byte on.

    Members of an object are generated in the order of `properties`, so that a valid instance in another order is
    rejected. White space between JSON tokens is left out before the check, since little of it is generated.

    Exit status: 0 all are accepted, 1 some are not, 2 the schema is refused.

    \b
    Examples:
      radixrt grammar check '{"type": "integer", "minimum": 10}' 42 7
      radixrt grammar check person.schema.json alice.json bob.json
      radixrt grammar check --regex '\\d{4}-\\d\\d' 2024-02
    """
    from radixrt.grammar import compile

    source = _read(schema)
    try:
        compiled = (
            compile(regex=source, tokenizer=model, backend=backend)
            if regex
            else compile(json_schema=source, tokenizer=model, backend=backend)
        )
    except InvalidConstraint as error:
        typer.echo(f"refused: {error}", err=True)
        raise typer.Exit(2) from None
    all_accepted = True
    for given in instance:
        text = _read(given)
        if not regex and not verbatim:
            text = without_white_space(text)
        verdict = compiled.check(text)
        all_accepted &= verdict.outcome == "accepted"
        typer.echo(report(given, text, verdict))
    raise typer.Exit(0 if all_accepted else 1)


def report(name: str, text: str, verdict: Verdict) -> str:
    """The verdict in words; of a text that does not fit also the place, with a caret below it."""
    if verdict.outcome == "accepted":
        return f"accepted: {_shortened(name)}"
    where = f"at byte {verdict.fitting}" if verdict.outcome == "rejected" else f"ends after byte {verdict.fitting}"
    data = text.encode()
    before = data[: verdict.fitting].decode(errors="ignore")[-_WIDTH // 2 :]
    after = data[verdict.fitting :].decode(errors="replace")[: _WIDTH // 2]
    shown, caret = _one_line(before), _one_line(after)
    return f"{verdict.outcome}: {_shortened(name)}: {where}\n  {shown}{caret}\n  {' ' * len(shown)}^"


def without_white_space(text: str) -> str:
    """JSON text without white space between its tokens; strings, numbers and escapes stay as they are written.

    >>> without_white_space('{"a b": [1,\\n 2]}')
    '{"a b":[1,2]}'
    """
    space = r"[ \t\r\n]*"
    pieces = rf'("(?:[^"\\]|\\.)*"?)|{space}([][{{}}:,]){space}|^{space}|{space}$'
    return re.sub(pieces, lambda found: found[1] or found[2] or "", text, flags=re.DOTALL)


def _read(given: str) -> str:
    """The file of that name, if there is one, without the line end at its end; else the text itself."""
    try:
        if Path(given).is_file():
            return Path(given).read_text(encoding="utf-8").removesuffix("\n")
    except (OSError, ValueError):
        pass  # too long, or otherwise no name of a file
    return given


def _one_line(text: str) -> str:
    return "".join(letter if letter.isprintable() else "·" for letter in text)


def _shortened(text: str) -> str:
    line = _one_line(text)
    return line if len(line) <= _WIDTH else f"{line[: _WIDTH - 3]}..."
