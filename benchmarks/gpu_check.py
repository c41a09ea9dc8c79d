"""Checks radixrt on a GPU in one go: is it right, and how fast is it beside what the card can do?

    python -m benchmarks.gpu_check [--out gpu_check.json] [--parts decode gaps ...]
    python -m benchmarks.gpu_check --device cpu --tiny

Nothing is downloaded: weights are random, made on the device in the shapes of Llama-3.1-8B and SmolLM2-135M. Each part
runs in a process of its own for at most 90 s, and all of it for less than 8 minutes, the compilation of kernels
included; a part that hangs or crashes is reported, and so is what is not there (a GPU, FlashInfer, nvcc). Parts that
compare run side by side, parts that measure alone. `--tiny` runs every part on shapes that a CPU computes in a moment.

It needs the extra `gpu`, and of `dev` pytest and transformers. Exit status: 0 if all that was checked is as it should
be, 1 if something is not, 2 if the device is not there.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.gpu import correctness, presence, speed
from benchmarks.gpu.findings import Findings
from benchmarks.gpu.isolation import Outcome, run_together
from benchmarks.gpu.setting import Setting
from radixrt.kernels.triton import availability as triton

PART_SECONDS, ALL_SECONDS = 90.0, 470.0
LEAST_SECONDS = 10.0
"""With less time left no part is begun."""
ALWAYS = ("backends", "machine")
"""Parts that the others go by."""

DTYPES = {"flashinfer": ("bfloat16",), "triton": ("bfloat16", "float16", "float32", "bfloat16-fp8")}
"""Of the conformance suite. FlashInfer would have to compile other kernels for others, for minutes."""
TINY_DTYPES = ("float32",)

Part = tuple[str, Callable[[Findings], None]]


def comparing(setting: Setting, names: list[str]) -> list[Part]:
    """Parts that run side by side."""
    parts: list[Part] = []
    for name in names:
        for dtype in TINY_DTYPES if setting.tiny else DTYPES[name]:
            run = partial(correctness.conformance, setting, name, dtype)
            parts.append((f"conformance {name} {dtype}", run))
    # FlashInfer has no float32: its tokens are compared by way of its logits.
    if "triton" in names:
        parts.append(("greedy triton", partial(correctness.greedy, setting, "triton")))
    return parts


def measuring(setting: Setting) -> list[Part]:
    """Parts that run alone, those first that matter most."""
    named = {
        "decode": speed.decode,
        "gaps": speed.gaps,
        "prefill": speed.prefill,
        "cascade": speed.cascade,
        "logits": correctness.logits,
        "cached": speed.cached,
    }
    return [
        (f"{name} {kernels}", partial(run, setting, kernels))
        for name, run in named.items()
        for kernels in setting.kernels
    ]


class Check:
    """Runs parts while there is time, and keeps how they ended."""

    def __init__(self, chosen: list[str]) -> None:
        self._chosen = chosen
        self._start = time.monotonic()
        self._folder = Path(tempfile.mkdtemp(prefix="gpu-check-"))
        self.outcomes: list[Outcome] = []

    def run(self, *parts: Part) -> list[Outcome]:
        """Run `parts` at once, those that were chosen."""
        wanted = [part for part in parts if not self._chosen or part[0].split()[0] in (*self._chosen, *ALWAYS)]
        left = ALL_SECONDS - (time.monotonic() - self._start)
        if not wanted:
            return []
        if left < LEAST_SECONDS:
            ended = [Outcome(name, (), 0.0, "not begun: the time is up") for name, _ in wanted]
        else:
            ended = run_together(wanted, min(PART_SECONDS, left), self._folder)
        for outcome in ended:
            fault = "" if outcome.fault is None else f": {outcome.fault}"
            print(f"{outcome.part}, {outcome.seconds:.1f} s{fault}", flush=True)
        self.outcomes += ended
        return ended


def value_of(outcomes: list[Outcome], what: str) -> float | str | None:
    """What was noted first under this name."""
    return next((f.value for outcome in outcomes for f in outcome.findings if f.what == what), None)


def number_of(outcomes: list[Outcome], what: str) -> float | None:
    value = value_of(outcomes, what)
    return value if isinstance(value, float) else None


def is_made_good(outcome: Outcome, outcomes: list[Outcome]) -> bool:
    """Whether a second try came to its end."""
    return any(other.part == f"{outcome.part}, again" and other.passed for other in outcomes)


def check_device(setting: Setting, chosen: list[str]) -> list[Outcome]:
    check = Check(chosen)
    asked = check.run(("backends", partial(presence.backends, setting)))
    names = [name for name in presence.NAMES if value_of(asked, presence.of(name)) == presence.THERE]
    rates = check.run(("machine", partial(speed.machine, setting)))
    setting = replace(setting, bandwidth=number_of(rates, speed.BANDWIDTH), rate=number_of(rates, speed.RATE))
    compiled = "flashinfer" not in names or compile_flashinfer(check, setting)
    names = names if compiled else [name for name in names if name != "flashinfer"]
    check.run(*comparing(setting, names))
    # Nothing is learnt from the time that an interpreter takes.
    timed = ["reference"] if setting.device == "cpu" else names
    for part in measuring(replace(setting, kernels=tuple(timed))):
        check.run(part)
    return check.outcomes


def compile_flashinfer(check: Check, setting: Setting) -> bool:
    """Whether it compiles what the large shape takes; what was compiled when the time was up is there for a second try.

    Not to have been asked to counts as well.
    """
    parts = [
        (f"compile flashinfer {kind}", partial(correctness.compile_flashinfer, setting, kind))
        for kind in correctness.KINDS
    ]
    failed = {outcome.part for outcome in check.run(*parts) if not outcome.passed}
    again = [(f"{name}, again", run) for name, run in parts if name in failed]
    return all(outcome.passed for outcome in check.run(*again))


def table_of(outcomes: list[Outcome]) -> Table:
    table = Table(title="Device check")
    for column in ("part", "what", "value", "target", ""):
        table.add_column(column, justify="right" if column in ("value", "target") else "left")
    for outcome in outcomes:
        for f in outcome.findings:
            value = f"{f.value:,.3g}" if isinstance(f.value, float) else str(f.value)
            mark = {None: "", True: "ok", False: "MISSED"}[f.met]
            table.add_row(outcome.part, f.what, f"{value} {f.unit}".strip(), f.target, mark)
        if outcome.fault is not None:
            table.add_row(outcome.part, outcome.fault.splitlines()[0], "", "", "LOST")
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="shapes for a CPU; speeds mean nothing")
    parser.add_argument("--out", type=Path, default=Path("gpu_check.json"), help="where results go, as JSON")
    parser.add_argument("--parts", nargs="*", default=[], help="first words of parts, such as decode (default: all)")
    chosen = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 140)
    if chosen.device == "cpu":
        # Triton asks when its kernels are defined, in the parts' processes.
        os.environ[triton.INTERPRET] = "1"
        # Threads that wait for each other on a busy machine take longer than one alone.
        torch.set_num_threads(1)
    # Asked through NVML: once CUDA runs in this process, no part could be forked from it.
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    if chosen.device != "cpu" and not torch.cuda.is_available():
        console.print("torch finds no GPU here; --device cpu --tiny tries the check itself")
        return 2
    start = time.monotonic()
    setting = Setting(chosen.device, chosen.tiny, kernels=())
    outcomes = check_device(setting, chosen.parts)
    passed = all(outcome.passed or is_made_good(outcome, outcomes) for outcome in outcomes)
    seconds = time.monotonic() - start
    results = {"passed": passed, "seconds": seconds, "parts": [asdict(outcome) for outcome in outcomes]}
    chosen.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    console.print(table_of(outcomes))
    console.print(f"{'passed' if passed else 'NOT passed'} in {seconds:.0f} s; results in {chosen.out}")
    return 0 if passed else 1


if __name__ == "__main__":
    raise SystemExit(main())
