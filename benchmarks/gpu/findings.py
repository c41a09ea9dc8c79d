"""What a part of the device check found: written line by line, so that what was found before a hang is not lost."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Finding:
    """One thing measured or checked."""

    what: str
    value: float | str | None
    unit: str = ""
    target: str = ""
    """What `value` should be, for people."""
    met: bool | None = None
    """Whether it is; None where nothing is asked of it."""


class Findings:
    """A file of findings that grows."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def note(self, what: str, value: float | str | None, unit: str = "") -> None:
        """Write down what nothing is asked of."""
        self._write(Finding(what, value, unit))

    def at_least(self, what: str, value: float, unit: str, least: float) -> None:
        """Write down what should not be below `least`."""
        self._write(Finding(what, value, unit, f">= {least:g}", value >= least))

    def at_most(self, what: str, value: float, unit: str, most: float) -> None:
        """Write down what should not be above `most`."""
        self._write(Finding(what, value, unit, f"<= {most:g}", value <= most))

    def holds(self, what: str, detail: str, met: bool) -> None:
        """Write down what is so or is not."""
        self._write(Finding(what, detail, met=met))

    def _write(self, finding: Finding) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(finding)) + "\n")


def read_findings(path: Path) -> list[Finding]:
    """What was written to the file; a line that was not finished is left out."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")
    return [Finding(**json.loads(line)) for line in lines[:-1]]
