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

from benchmarks.gpu import correctness, speed
from benchmarks.gpu.findings import Finding, Findings
from benchmarks.gpu.isolation import Outcome, run_together
from benchmarks.gpu.setting import Setting
from radixrt.kernels.flashinfer import availability as flashinfer
from radixrt.kernels.triton import availability as triton

PART_SECONDS, ALL_SECONDS = 90.0, 470.0
LEAST_SECONDS = 10.0
"""With less time left no part is begun."""

Part = tuple[str, Callable[[Findings], None]]


def backends(setting: Setting) -> tuple[list[str], list[Finding]]:
    """The backends that run here, best first, and what keeps the others from it."""
    there, missing = [], []
    for name, why_not in (("flashinfer", flashinfer.why_not), ("triton", triton.why_not)):
        if setting.device == "cpu" and name == "flashinfer":
            missing.append(Finding(f"{name} kernels", "not on a CPU"))
        elif (reason := why_not(setting.device.split(":")[0])) is None:
            there.append(name)
        else:
            missing.append(Finding(f"{name} kernels", f"not here: {reason}", met=None if setting.tiny else False))
    return there, missing


def comparing(setting: Setting, names: list[str]) -> list[Part]:
    """Parts that run side by side."""
    parts: list[Part] = []
    if "flashinfer" in names:
        parts.append(("compile flashinfer", partial(correctness.compile_flashinfer, setting)))
    dtypes = {"flashinfer": ("bfloat16", "float16"), "triton": ("bfloat16", "float16", "float32")}
    for name in names:
        for dtype in dtypes[name] if not setting.tiny else ("float32",):
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
        wanted = [part for part in parts if not self._chosen or part[0].split()[0] in (*self._chosen, "machine")]
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


def value_of(outcomes: list[Outcome], what: str) -> float | None:
    """The number that was noted under this name."""
    found = [f.value for outcome in outcomes for f in outcome.findings if f.what == what]
    return found[0] if found and isinstance(found[0], float) else None


def check_device(setting: Setting, chosen: list[str]) -> tuple[list[Outcome], list[Finding]]:
    names, missing = backends(setting)
    check = Check(chosen)
    rates = check.run(("machine", partial(speed.machine, setting)))
    setting = replace(setting, bandwidth=value_of(rates, speed.BANDWIDTH), rate=value_of(rates, speed.RATE))
    compared = check.run(*comparing(setting, names))
    compiled = {outcome.part: outcome.passed for outcome in compared}.get("compile flashinfer", True)
    timed = [name for name in names if name != "flashinfer" or compiled]
    if setting.device == "cpu":
        # Nothing is learnt from the time that an interpreter takes.
        timed = ["reference"]
    for part in measuring(replace(setting, kernels=tuple(timed))):
        check.run(part)
    return check.outcomes, missing


def table_of(outcomes: list[Outcome], missing: list[Finding]) -> Table:
    table = Table(title="Device check")
    for column in ("part", "what", "value", "target", ""):
        table.add_column(column, justify="right" if column in ("value", "target") else "left")
    for outcome in (*outcomes, Outcome("", tuple(missing), 0.0)):
        for f in outcome.findings:
            value = f"{f.value:,.3g}" if isinstance(f.value, float) else str(f.value)
            mark = {None: "", True: "ok", False: "MISSED"}[f.met]
            table.add_row(outcome.part, f.what, f"{value} {f.unit}".strip(), f.target, mark)
        if outcome.fault is not None:
            table.add_row(outcome.part, outcome.fault.splitlines()[0], "", "", "LOST")
    return table


def machine_fields(setting: Setting) -> dict[str, str]:
    """What the results were measured on."""
    on_gpu = setting.device != "cpu"
    return {
        "device": torch.cuda.get_device_name(setting.torch_device) if on_gpu else "CPU",
        "torch": torch.__version__,
        "cuda": str(torch.version.cuda or torch.version.hip),
    }


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
    outcomes, missing = check_device(setting, chosen.parts)
    passed = all(outcome.passed for outcome in outcomes) and all(finding.met is not False for finding in missing)
    results = {
        "machine": machine_fields(setting),
        "passed": passed,
        "seconds": time.monotonic() - start,
        "parts": [asdict(outcome) for outcome in outcomes],
        "missing": [asdict(finding) for finding in missing],
    }
    chosen.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    console.print(table_of(outcomes, missing))
    console.print(f"{'passed' if passed else 'NOT passed'} in {results['seconds']:.0f} s; results in {chosen.out}")
    return 0 if passed else 1


if __name__ == "__main__":
    raise SystemExit(main())
