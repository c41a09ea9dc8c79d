"""What a decode step costs besides the model: plan, what the sampled tokens mean, apply, events.

    python -m benchmarks.engine_overhead [--rows 1 8 32 64] [--steps 2000]

The engine, the scheduler and the cache are the worker's own; the executor gives each sampled row a letter at once and
its time does not count. Times are processor time of the one thread, in microseconds a step; `programs` adds what the
worker does on top, from the engine's events to the bytes of a message for each client.
"""

from __future__ import annotations

import argparse
import gc
import time
from concurrent.futures import Future

import msgspec
import numpy as np

from radixrt.cache.prefix_cache import PrefixCache
from radixrt.errors import InvalidConstraint
from radixrt.grammar.interface import Grammar
from radixrt.protocol.constraint import Constraint
from radixrt.protocol.ids import IdArray, as_ids, pack_ids
from radixrt.protocol.messages import Events, SubmitTree, TreeNode, Welcome
from radixrt.protocol.plan import SampledToken, StepPlan, StepResult
from radixrt.protocol.sampling import SamplingParams
from radixrt.protocol.segments import Ids
from radixrt.scheduler.scheduler import Limits, Scheduler
from radixrt.worker.engine import Engine
from radixrt.worker.programs import Programs

PAGE_SIZE = 16
PROMPT_TOKENS = 500
VOCABULARY = 50_000
WELCOME = Welcome(1, "none", "cpu", "none", "none", PAGE_SIZE, 64, 0, 4096, VOCABULARY)


class Letters:
    """A vocabulary in which every token is a letter."""

    vocabulary_size = VOCABULARY

    def token_bytes(self, token: int) -> bytes:
        return b"a"

    def encode_bytes(self, data: bytes) -> IdArray:
        return as_ids(data)


class NoGrammars:
    """Compiles nothing."""

    def submit(self, constraint: Constraint) -> Future[Grammar]:
        future: Future[Grammar] = Future()
        future.set_exception(InvalidConstraint("there are no grammars here", field="constraint"))
        return future


class Instant:
    """Computes nothing; `seconds` is the time that it took over that."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def submit(self, plan: StepPlan) -> StepResult:
        start = time.thread_time()
        result = StepResult(plan.step, tuple([SampledToken(spec.position % VOCABULARY) for spec in plan.samples]))
        self.seconds += time.thread_time() - start
        return result


def measure(rows: int, steps: int, *, stop: tuple[str, ...] = ()) -> tuple[list[float], list[float]]:
    """Seconds of each decode step of `rows` requests, without the executor: of the engine, and of all up to bytes."""
    pages = rows * (-(-(PROMPT_TOKENS + 2 * steps + 100) // PAGE_SIZE) + 1)
    limits = Limits(rows, max(512, rows), PROMPT_TOKENS + 2 * steps + 100)
    executor = Instant()
    scheduler = Scheduler(PrefixCache(pages, PAGE_SIZE), limits)
    engine = Engine(scheduler, executor, Letters(), frozenset([0]), NoGrammars())
    programs = Programs(engine, WELCOME)
    rng = np.random.default_rng(0)
    params = SamplingParams(max_tokens=10**6, ignore_eos=True, stop=stop)
    for number in range(rows):
        prompt = Ids(pack_ids(rng.integers(0, VOCABULARY, PROMPT_TOKENS, dtype=np.int32)))
        programs.submit(b"client", SubmitTree(number, (TreeNode(1, None, (prompt,), params),)))
    while any(request.state_name != "decoding" for request in scheduler.running) or len(scheduler.running) < rows:
        programs.step()

    encoder = msgspec.msgpack.Encoder()

    def step_engine() -> None:
        engine.step()

    def step_programs() -> None:
        for events in programs.step().values():
            encoder.encode(Events(tuple(events)))

    taken: tuple[list[float], list[float]] = ([], [])
    gc.collect()
    gc.freeze()
    for step, seconds in zip((step_engine, step_programs), taken, strict=True):
        for _ in range(steps):
            executor.seconds = 0.0
            start = time.thread_time()
            step()
            seconds.append(time.thread_time() - start - executor.seconds)
    gc.unfreeze()
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8, 32, 64])
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--stop", nargs="*", default=[], help="stop strings of every request")
    chosen = parser.parse_args()
    print("rows  engine p50      p99  programs p50      p99   (us a step)")
    for rows in chosen.rows:
        columns = measure(rows, chosen.steps, stop=tuple(chosen.stop))
        (e50, e99), (p50, p99) = (np.percentile(column, (50, 99)) * 1e6 for column in columns)
        print(f"{rows:4d} {e50:11.0f} {e99:8.0f} {p50:13.0f} {p99:8.0f}", flush=True)


if __name__ == "__main__":
    main()
