"""Runs parts of a check in processes of their own, so that one that hangs or crashes takes nothing with it.

A process is forked from one that has imported torch and has not touched the device: imports are paid for once.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path

from benchmarks.gpu.findings import Finding, Findings, read_findings

_STACK_BEFORE = 2.0
"""Seconds before its end at which a part that hangs writes down where."""


@dataclass(frozen=True)
class Outcome:
    """How a part ended."""

    part: str
    findings: tuple[Finding, ...]
    seconds: float
    fault: str | None = None
    """Why it did not come to its end, with what it wrote to its log last."""

    @property
    def passed(self) -> bool:
        return self.fault is None and all(finding.met is not False for finding in self.findings)


def run_together(parts: Sequence[tuple[str, Callable[[Findings], None]]], limit: float, folder: Path) -> list[Outcome]:
    """Run `parts`, each in its own process, all at once; each has `limit` seconds. Files go to `folder`."""
    context = multiprocessing.get_context("fork")
    start = time.monotonic()
    running = []
    for name, part in parts:
        process = context.Process(target=_run, args=(part, limit, _files(folder, name)), name=name)
        process.start()
        running.append((name, process))
    outcomes = []
    for name, process in running:
        process.join(max(0.0, start + limit - time.monotonic()))
        outcomes.append(_end(name, process, time.monotonic() - start, limit, _files(folder, name)))
    return outcomes


def _files(folder: Path, name: str) -> tuple[Path, Path]:
    """Of a part: its findings, and what it says."""
    stem = name.replace(" ", "-").replace(":", "")
    return folder / f"{stem}.jsonl", folder / f"{stem}.log"


def _run(part: Callable[[Findings], None], limit: float, files: tuple[Path, Path]) -> None:
    findings, log = files
    os.setsid()  # Compilers that it starts end with it.
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    with os.fdopen(handle, "w") as file:
        faulthandler.enable(file)
        faulthandler.dump_traceback_later(max(limit - _STACK_BEFORE, limit / 2), file=file)
        try:
            part(Findings(findings))
        except BaseException:
            traceback.print_exc(file=file)
            file.flush()
            os._exit(1)
        # Not through the interpreter's end: what a library does there is no part's business.
        sys.stdout.flush()
        file.flush()
        os._exit(0)


def _end(name: str, process: BaseProcess, seconds: float, limit: float, files: tuple[Path, Path]) -> Outcome:
    fault = None
    if process.is_alive():
        fault = f"no end after {limit:g} s"
    elif process.exitcode:
        code = process.exitcode
        fault = f"ended by signal {signal.Signals(-code).name}" if code < 0 else "failed"
    if process.pid is not None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()
    process.join()
    if fault is not None:
        fault += _last_words(files[1])
    return Outcome(name, tuple(read_findings(files[0])), seconds, fault)


def _last_words(log: Path, lines: int = 12) -> str:
    said = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    # faulthandler begins with the innermost call.
    stacks = [index for index, line in enumerate(said) if line.startswith("Timeout (")]
    chosen = said[stacks[0] :][:lines] if stacks else said[-lines:]
    return "".join(f"\n    {line}" for line in chosen)
