"""The longest gap between two tokens that a long prompt causes beside requests that decode, on a real model.

    python -m benchmarks.token_gaps [--model smollm2-135m] [--prompt 6000] [--decoders 16] [--step-tokens 512 128]

Wall clock; the first line of each measurement is what decoding costs with no prompt beside it.
"""

from __future__ import annotations

import argparse
import time
from statistics import median

import numpy as np

from radixrt.config import WorkerConfig
from radixrt.protocol.ids import as_ids
from radixrt.protocol.sampling import SamplingParams
from radixrt.worker.build import build_engine
from radixrt.worker.engine import Engine, Progress

ENDLESS = SamplingParams(temperature=0.0, max_tokens=4000, ignore_eos=True)


def tokens_of_a_step(engine: Engine) -> tuple[set[int], float]:
    """Whose tokens a step brought, and how many seconds it took."""
    start = time.perf_counter()
    events = engine.step()
    return {event.request for event in events if isinstance(event, Progress)}, time.perf_counter() - start


def measure(model: str, prompt: int, decoders: int, step_tokens: int) -> None:
    context = prompt + 2000
    config = WorkerConfig(model=model, step_tokens=step_tokens, context_length=min(context, 8192), kv_memory=2 * 2**30)
    engine, _ = build_engine(config)
    rng = np.random.default_rng(0)
    requests = {
        engine.add(as_ids(rng.integers(100, 40_000, 50)), ENDLESS, seed=0, choice=choice) for choice in range(decoders)
    }
    seen: set[int] = set()
    while seen != requests:
        seen |= tokens_of_a_step(engine)[0]
    alone = [tokens_of_a_step(engine)[1] for _ in range(10)]
    print(f"budget {step_tokens}: alone {median(alone) * 1e3:.0f} ms a token", flush=True)
    huge = engine.add(as_ids(rng.integers(100, 40_000, prompt)), ENDLESS, seed=0)
    gaps: list[float] = []
    computed: set[int] = set()
    while huge not in computed:
        computed, seconds = tokens_of_a_step(engine)
        assert requests <= computed, "a decoder got no token"
        gaps.append(seconds)
    print(f"  beside {prompt} tokens of prompt: {len(gaps)} steps, longest gap {max(gaps) * 1e3:.0f} ms", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--prompt", type=int, default=6000)
    parser.add_argument("--decoders", type=int, default=16)
    parser.add_argument("--step-tokens", type=int, nargs="+", default=[512, 128])
    chosen = parser.parse_args()
    for step_tokens in chosen.step_tokens:
        measure(chosen.model, chosen.prompt, chosen.decoders, step_tokens)


if __name__ == "__main__":
    main()
