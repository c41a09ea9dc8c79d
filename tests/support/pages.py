"""Documentation that is run: the code blocks of a page, in order, and what the page shows of their output.

```python           runs, in one namespace a page; one that begins with "# name.py" is also a file of that name
```python sglang    is another library's code (any word says whose), and is not run
```sh               runs, each line a `radixrt` command
```sh model         would need a model (any word says what), and is not run; `radixrt` commands in it have to be such
```text             what the block before it printed, to the letter
```text sample      what it printed once: a model's words differ between processors, the number of lines does not
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import typer

from radixrt.cli import app

_BLOCK = re.compile(r"^```(\w+)(?: ([^\n]+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# (\w+\.py)\n")


@dataclass(frozen=True)
class Block:
    """A fenced block; `line` is that of its first line in the page."""

    kind: str
    note: str
    text: str
    line: int

    @property
    def runs(self) -> bool:
        return self.kind in ("python", "sh") and not self.note


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(match[1], match[2] or "", match[3], text.count("\n", 0, match.start(3)) + 1)
        for match in _BLOCK.finditer(text)
    ]


def commands(page: Path) -> list[str]:
    """The `radixrt` commands that a page shows, run or not."""
    lines = [line for block in blocks(page) if block.kind == "sh" for line in block.text.splitlines()]
    return [line for line in lines if line.startswith("radixrt ")]


def check_command(line: str) -> None:
    """Fails where the shell has no such command, argument or option; nothing runs."""
    _, *arguments = shlex.split(line, comments=True)
    command = typer.main.get_command(app)
    while children := getattr(command, "commands", None):
        name = arguments.pop(0)
        assert name in children, f"{line!r}: radixrt has no {name}"
        command = children[name]
    try:
        command.make_context(line, arguments)
    except Exception as error:  # whichever click typer brings: its own, or that of the environment
        raise AssertionError(f"{line!r}: {error}") from error


def check_page(page: Path, module: ModuleType, folder: Path, addresses: Mapping[str, str]) -> None:
    """Run the page's blocks in `module` and `folder`; fails at the first that shows another output than it has.

    `addresses`: by what the page writes, where that is.
    """
    for block, shown in _with_output(blocks(page)):
        printed = _python(block, page, module, folder, addresses) if block.kind == "python" else _shell(block, folder)
        place = f"{page.name}:{block.line}"
        if shown is None:
            assert not printed, f"{place} prints what the page does not show:\n{printed}"
        elif shown.note == "sample":
            assert printed.count("\n") == shown.text.count("\n"), f"{place} prints other lines:\n{printed}"
        else:
            assert _stripped(printed) == _stripped(shown.text), f"{place} prints:\n{printed}"


def _with_output(page: list[Block]) -> Iterator[tuple[Block, Block | None]]:
    """Those that run, each with the block that shows its output, if there is one."""
    for block, after in zip(page, [*page[1:], None], strict=True):
        if block.runs:
            yield block, after if after is not None and after.kind == "text" else None


def _python(block: Block, page: Path, module: ModuleType, folder: Path, addresses: Mapping[str, str]) -> str:
    if name := _FILE.match(block.text):
        (folder / name[1]).write_text(block.text, encoding="utf-8")
    text = block.text
    for written, address in addresses.items():
        text = text.replace(written, address)
    # Tracebacks are to name the page's lines.
    code = compile("\n" * (block.line - 1) + text, str(page), "exec")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, module.__dict__)
    return printed.getvalue()


def _shell(block: Block, folder: Path) -> str:
    printed = ""
    for line in block.text.splitlines():
        program, *arguments = shlex.split(line, comments=True)
        assert program == "radixrt", f"{line!r} is no radixrt command"
        command = [sys.executable, "-m", "radixrt", *arguments]
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=60, env={"COLUMNS": "120", "PATH": ""}
        )
        assert not done.stderr, done.stderr  # the status may tell of what was checked
        printed += done.stdout
    return printed


def _stripped(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().splitlines()]
