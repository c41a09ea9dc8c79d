"""What a step's scheduling costs on the processor, with a full batch and a long queue, at several sizes of the tree.

    python -m benchmarks.scheduler [--running 64] [--waiting 1000] [--nodes 1000 100000 1000000] [--steps 2000]

`plan` is everything up to the finished step plan, batch assembly included; `apply` takes in what the step brought.
There is no model: each row that ends at its last known token gets a token at once. Prompts are a few shared stems with
tails of their own, so that requests wait for each other's prefixes; answers have 20 to 180 tokens, and whoever has
ended comes back with a new request, so that the queue stays as long as it is. Times are processor time of the one
thread, in microseconds. `admissions` says how many requests were admitted in the measured steps.
"""

from __future__ import annotations

import argparse
import gc
import time

import numpy as np

from radixrt.cache.prefix_cache import PrefixCache
from radixrt.protocol.ids import as_ids
from radixrt.protocol.sampling import SamplingParams
from radixrt.scheduler.policy import SCHEDULE_POLICIES
from radixrt.scheduler.request import Origin, Request, TokenBuffer
from radixrt.scheduler.scheduler import Limits, Outcome, Scheduler

PAGE_SIZE = 16
STEMS, STEM_TOKENS, TAIL_TOKENS = 40, 600, 60
VOCABULARY = 50_000
PARAMS = SamplingParams(max_tokens=1000)
NO_ENDS = as_ids([])


class Load:
    """A closed loop of requests around one scheduler."""

    def __init__(self, policy: str, running: int, waiting: int, nodes: int) -> None:
        self._rng = np.random.default_rng(1)
        pages = 4 * nodes + (running + STEMS) * 100
        self._cache = PrefixCache(pages, PAGE_SIZE)
        grow_tree(self._cache, nodes, self._rng)
        self.scheduler = Scheduler(self._cache, Limits(running, 512, 4096), policy)
        self._stems = self._rng.integers(0, VOCABULARY, (STEMS, STEM_TOKENS), dtype=np.int32)
        self._answers: dict[int, int] = {}
        self._requests = 0
        self._queue_length = running + waiting
        self.fill()

    def fill(self) -> None:
        """As many requests as there should be."""
        while len(self._answers) < self._queue_length:
            rng, number = self._rng, self._requests
            tail = rng.integers(0, VOCABULARY, rng.integers(1, TAIL_TOKENS), dtype=np.int32)
            prompt = np.concatenate([self._stems[rng.integers(STEMS)][: rng.integers(100, STEM_TOKENS)], tail])
            request = Request(number, TokenBuffer(prompt), len(prompt), 4096, PARAMS, 0, 0, NO_ENDS, Origin())
            self._answers[number] = int(rng.integers(20, 180))
            self._requests += 1
            self.scheduler.add(request)

    def step(self) -> tuple[float, float]:
        """Seconds of `plan` and of `apply`."""
        start = time.thread_time()
        plan = self.scheduler.plan()
        planned = time.thread_time()
        assert plan is not None
        outcomes = []
        for spec in plan.samples:
            request = plan.requests[spec.row]
            self._answers[request] -= 1
            outcomes.append(Outcome((spec.position % VOCABULARY,), ended=self._answers[request] == 0))
            if outcomes[-1].ended:
                del self._answers[request]
        between = time.thread_time()
        self.scheduler.apply(plan, outcomes)
        return planned - start, time.thread_time() - between

    def measure(self, steps: int) -> str:
        """A line of the table."""
        while len(self.scheduler.running) < self.scheduler.limits.max_running:
            self.step()
        admitted = self.scheduler.counters.prompt_tokens, self._requests
        times = []
        for _ in range(steps):
            times.append(self.step())
            self.fill()
        columns = [f"{np.percentile(column, p) * 1e6:8.0f}" for column in zip(*times, strict=True) for p in (50, 99)]
        return " ".join([*columns, f"{self._requests - admitted[1]:10d}"])


def grow_tree(cache: PrefixCache, nodes: int, rng: np.random.Generator) -> None:
    """Fill the tree with `nodes` short prompts that share nothing."""
    for _ in range(nodes):
        ids = rng.integers(0, VOCABULARY, 2 * PAGE_SIZE, dtype=np.int32)
        lease = cache.acquire((), ids)
        pages = cache.allocate(2)
        assert pages is not None
        lease.extend(ids, pages)
        lease.release()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--running", type=int, default=64)
    parser.add_argument("--waiting", type=int, default=1000)
    parser.add_argument("--nodes", type=int, nargs="+", default=[1_000, 100_000, 1_000_000])
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--policies", nargs="+", default=list(SCHEDULE_POLICIES), choices=list(SCHEDULE_POLICIES))
    chosen = parser.parse_args()
    print(f"{chosen.running} running, {chosen.waiting} waiting; microseconds")
    print("  policy    nodes plan p50      p99 apply p50     p99 admissions")
    for nodes in chosen.nodes:
        for policy in chosen.policies:
            load = Load(policy, chosen.running, chosen.waiting, nodes)
            gc.collect()
            gc.freeze()
            print(f"{policy:>8} {nodes:8d} {load.measure(chosen.steps)}", flush=True)
            gc.unfreeze()


if __name__ == "__main__":
    main()
