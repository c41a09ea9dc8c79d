"""How fast the whole engine decodes and prefills, and how often its kernels choose as float32 does.

    python -m benchmarks.engine [--model smollm2-135m] [--kernels auto] [--activations auto]
        [--batches 1 4 8 16 32 64] [--prompts 128 512 2000 6000] [--no-agreement] [--llama-python PATH]

Decode: so many requests of 100 random prompt tokens each; tokens a second are the batch over the median step, greedy
sampling and scheduling included, with the part of a step that is not the executor's beside it. Prefill: one request
of so many random tokens, from its arrival to its first token. Agreement: on 20 prompts that the float32 reference
continues by 64 greedy tokens, teacher-forced; with `--llama-python`, a Python that has xllamacpp, for llama.cpp too.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from pathlib import Path
from statistics import median

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from benchmarks.agreement import Agreement, TeacherForced, Text, compare, greedy_texts
from radixrt.client.worker_config import worker_config
from radixrt.protocol.ids import as_ids
from radixrt.protocol.plan import StepPlan, StepResult
from radixrt.protocol.sampling import SamplingParams
from radixrt.text.model_files import find_model
from radixrt.text.tokenizer import load_tokenizer
from radixrt.worker.build import build_engine
from radixrt.worker.engine import Engine, Progress
from radixrt.worker.pipeline import Executor
from tests.support.prompts import PROMPTS

CONTEXT = 100
STEPS = 30
ENDLESS = SamplingParams(temperature=0.0, max_tokens=4000, ignore_eos=True)
ONE_TOKEN = SamplingParams(temperature=0.0, max_tokens=1, ignore_eos=True)
REPEATS = 3


class Clocked:
    """An executor that adds up the time it takes."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self.seconds = 0.0

    def submit(self, plan: StepPlan) -> StepResult:
        start = time.perf_counter()
        result = self._executor.submit(plan)
        self.seconds += time.perf_counter() - start
        return result


class Bench:
    """One engine and random prompts that share nothing."""

    def __init__(self, model: str, kernels: str, dtype: str, activations: str) -> None:
        config = worker_config(
            model=model,
            kernels=kernels,
            dtype=dtype,
            activations=activations,
            kv_memory=2**30,
            prefix_cache=False,
        )
        self.engine, self.welcome = build_engine(config)
        pipeline = self.engine._pipeline
        self._clock = Clocked(pipeline._executor)
        pipeline._executor = self._clock
        self._rng = np.random.default_rng(0)

    def add(self, tokens: int, params: SamplingParams) -> int:
        ids = self._rng.integers(100, self.welcome.vocabulary_size - 100, tokens)
        return self.engine.add(as_ids(ids), params, seed=0)

    def decode(self, batch: int) -> tuple[float, float]:
        """Seconds of a step, and how many of them are not the executor's."""
        requests = {self.add(CONTEXT, ENDLESS) for _ in range(batch)}
        _step_until(self.engine, requests)
        steps, besides = [], []
        for _ in range(STEPS):
            start, inside = time.perf_counter(), self._clock.seconds
            self.engine.step()
            steps.append(time.perf_counter() - start)
            besides.append(steps[-1] - (self._clock.seconds - inside))
        for request in requests:
            self.engine.abort(request)
        return median(steps), median(besides)

    def prefill(self, tokens: int) -> float:
        """Seconds to the first token."""
        start = time.perf_counter()
        _step_until(self.engine, {self.add(tokens, ONE_TOKEN)})
        return time.perf_counter() - start


def _step_until(engine: Engine, requests: set[int]) -> None:
    """Until each of them has a token."""
    waiting = set(requests)
    while waiting:
        waiting -= {event.request for event in engine.step() if isinstance(event, Progress)}


def speed_table(bench: Bench, batches: list[int], prompts: list[int]) -> Table:
    welcome = bench.welcome
    table = Table(title=f"{welcome.model}, {welcome.kernels} kernels, {welcome.dtype}")
    for column in ("", "tokens/s", "ms a step", "of it not the executor's, us"):
        table.add_column(column, justify="right")
    bench.decode(1)
    for batch in batches:
        runs = [bench.decode(batch) for _ in range(REPEATS)]
        seconds, besides = (median(column) for column in zip(*runs, strict=True))
        table.add_row(
            f"decode, batch {batch}", f"{batch / seconds:,.0f}", f"{seconds * 1e3:.2f}", f"{besides * 1e6:.0f}"
        )
    for prompt in prompts:
        seconds = median(bench.prefill(prompt) for _ in range(REPEATS))
        table.add_row(f"prefill of {prompt}", f"{prompt / seconds:,.0f}", "", "")
    return table


def agreement_table(model: str, kernels: str, dtype: str, activations: str, llama_python: str | None) -> Table:
    files = find_model(model)
    tokenizer = load_tokenizer(files)
    texts = greedy_texts(model, [tokenizer.encode(prompt).tolist() for prompt in PROMPTS], tokens=64)
    oracle = TeacherForced(files, "reference", "float32")
    reference = [oracle.choices(text) for text in texts]
    table = Table(title="Choices equal to the float32 reference's, teacher-forced")
    for column in ("", "positions", "equal", "where its margin is over 1.0"):
        table.add_column(column, justify="right")
    ours = TeacherForced(files, kernels, dtype, activations)
    _add(table, "radixrt", compare(reference, [ours.choices(text).argmax(-1) for text in texts]))
    if llama_python is not None:
        _add(table, "llama.cpp", compare(reference, llama_choices(llama_python, files.gguf, texts)))
    return table


def _add(table: Table, name: str, found: Agreement) -> None:
    table.add_row(
        name,
        str(found.positions),
        f"{found.equal / found.positions:.2%}",
        f"{found.decided_equal} of {found.decided}",
    )


def llama_choices(python: str, gguf: Path | None, texts: list[Text]) -> list[torch.Tensor]:
    """What llama.cpp chooses in place of each token of the outputs."""
    prefixes = [text.prompt + text.output[:count] for text in texts for count in range(len(text.output))]
    script = Path(__file__).parent / "peers" / "llama_cpp.py"
    asked = json.dumps({"model": str(gguf), "prefixes": prefixes})
    done = subprocess.run([python, str(script)], input=asked, stdout=subprocess.PIPE, text=True, check=True)
    chosen = iter(json.loads(done.stdout.splitlines()[-1]))
    return [torch.tensor([next(chosen) for _ in text.output]) for text in texts]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--kernels", default="auto")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--activations", default="auto")
    parser.add_argument("--batches", type=int, nargs="*", default=[1, 4, 8, 16, 32, 64])
    parser.add_argument("--prompts", type=int, nargs="*", default=[128, 512, 2000, 6000])
    parser.add_argument("--no-agreement", dest="agreement", action="store_false")
    parser.add_argument("--llama-python", help="a Python that has xllamacpp")
    chosen = parser.parse_args()
    console = Console()
    bench = Bench(chosen.model, chosen.kernels, chosen.dtype, chosen.activations)
    console.print(speed_table(bench, chosen.batches, chosen.prompts))
    if chosen.agreement:
        agreement = agreement_table(chosen.model, chosen.kernels, chosen.dtype, chosen.activations, chosen.llama_python)
        console.print(agreement)


if __name__ == "__main__":
    main()
