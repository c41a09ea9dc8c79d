"""Parts of the device check that compare: kernels with their meaning, models with transformers'."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from benchmarks.gpu.engines import engine_of, outputs
from benchmarks.gpu.findings import Findings
from benchmarks.gpu.models import (
    LARGE,
    PAGE_SIZE,
    SMALL,
    RandomWeights,
    layout_of,
    model_fields,
    one_sequence,
    random_model,
    transformers_model,
)
from benchmarks.gpu.setting import ROOT, Setting
from radixrt.kernels import fp8
from radixrt.model.hf_config import parse_config
from radixrt.model.loader import build_model
from radixrt.worker.executor import ModelExecutor

if TYPE_CHECKING:
    import pytest

ERROR_RATIO = 1.05
"""Of errors that ought to be equal: two orders of adding in bfloat16 differ by a few hundredths."""


class _Counted:
    """Writes down each failure, and a count every so often: what is left of a run that is cut short."""

    def __init__(self, what: str, found: Findings) -> None:
        self._what, self._found = what, found
        self.passed = self.failed = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed += 1
            self._found.holds(self._what, f"{report.nodeid} ({report.when}) failed", False)
        elif report.when == "call" and report.passed:
            self.passed += 1
            if self.passed % 50 == 0:
                self._found.note(f"{self._what}, so far", float(self.passed), "passed")


def conformance(setting: Setting, kernels: str, dtype: str, found: Findings) -> None:
    """The conformance suite, on one backend in one dtype; of a tiny check only the operations on rows."""
    # Imported here: where it is not installed, the other parts can do without.
    import pytest

    on_cpu = setting.device == "cpu"
    if dtype.endswith("fp8") and not on_cpu and (reason := fp8.why_not("cuda")) is not None:
        found.note(f"conformance of {kernels} in fp8", f"not here: {reason}")
        return
    backend = f"{kernels}-{dtype}" + ("" if on_cpu else "-cuda")
    what = f"conformance of {backend}"
    counted = _Counted(what, found)
    folder = ROOT / "tests" / "conformance"
    suite = folder / "test_fused.py" if setting.tiny else folder
    # By itself: what the project's other tests want need not be installed, and a library's warnings are no failures.
    alone = ["-c", os.devnull, "--rootdir", str(ROOT), "--confcutdir", str(folder), "--import-mode", "importlib"]
    options = ["-q", "-p", "no:cacheprovider", "-W", "ignore", "-m", "not long", "-k", backend]
    code = pytest.main([str(suite), *options, *alone], plugins=[counted])
    found.holds(what, f"{counted.passed} passed, {counted.failed} failed", counted.passed > 0 and int(code) == 0)


KINDS = {
    "decode": [(1, 90, [0, 1, 2, 3, 4, 5]), (1, 60, [6, 7, 8, 9])],
    "prefill": [(100, 150, list(range(10))), (60, 60, list(range(10, 14)))],
    # With a chunk beside them, since branches alone are left to Triton's graphs.
    "cascade": [*((1, 4100, [*range(256), 256 + n]) for n in range(3)), (20, 30, [260, 261])],
}
"""Rows that each of FlashInfer's wrappers is for: new tokens, length of the sequence, its pages."""


def compile_flashinfer(setting: Setting, kind: str, found: Findings) -> None:
    """Have FlashInfer compile what the large shape takes, by a step of one kind."""
    fields = model_fields(LARGE, tiny=False) | {"num_hidden_layers": 1, "vocab_size": 1024}
    backend = setting.load("flashinfer", "bfloat16")
    model = random_model(fields, backend, 8192)
    kv = backend.allocate_kv(model.kv_shape(262, PAGE_SIZE))
    sizes, contexts, tables = zip(*KINDS[kind], strict=True)
    layout = layout_of(sizes, contexts, tables)
    tokens = int(layout.query_starts[-1])
    with caught_warnings("radixrt.kernels.flashinfer") as said:
        logits = _forward(model, torch.arange(tokens) % 1024, layout, kv, torch.arange(tokens))
    found.holds(f"a step of {kind}", "finite logits", bool(logits.isfinite().all()))
    found.holds(f"a step of {kind}, computed by FlashInfer", "; ".join(said) or "yes", not said)


def greedy(setting: Setting, kernels: str, found: Findings) -> None:
    """Greedy tokens in float32 on the small shape are those of transformers, cached or not."""
    fields = model_fields(SMALL, tiny=setting.tiny)
    config = parse_config(fields)
    backend = setting.load(kernels, "float32")
    weights = RandomWeights(config, torch.float32, setting.torch_device)
    length, tokens = (12, 3) if setting.tiny else (200, 48)
    model = build_model(config, weights, backend, 512)
    pages = 256
    depth = 1 if setting.device == "cpu" else 2
    engine = engine_of(ModelExecutor(model, backend, pages, PAGE_SIZE), model, pages, depth, step_tokens=128)
    rng = np.random.default_rng(0)
    prompts = [rng.integers(0, config.vocabulary_size, length).tolist() for _ in range(2 if setting.tiny else 4)]
    prompts.append(prompts[0][: length // 2] + prompts[1][: length // 2])
    theirs = transformers_model(fields, weights, torch.float32)
    ours = outputs(engine, prompts, tokens) + outputs(engine, prompts[-1:], tokens)
    expected = [_their_tokens(theirs, prompt, tokens, setting.torch_device) for prompt in prompts]
    expected.append(expected[-1])
    equal = sum(a == b for a, b in zip(ours, expected, strict=True))
    found.holds(
        f"float32 greedy texts of {tokens} tokens, {SMALL} shape, {kernels}: as transformers'",
        f"{equal} of {len(expected)}",
        equal == len(expected),
    )


def logits(setting: Setting, kernels: str, found: Findings) -> None:
    """Teacher-forced bfloat16 logits on the large shape: as far from float32 as transformers' own, or nearer."""
    fields = model_fields(LARGE, tiny=setting.tiny)
    config = parse_config(fields)
    backend = setting.load(kernels, "bfloat16")
    weights = RandomWeights(config, torch.bfloat16, setting.torch_device)
    count = 48 if setting.tiny else 512
    random = torch.Generator().manual_seed(0)
    ids = torch.randint(0, config.vocabulary_size, (count,), generator=random)
    exact = _their_logits(transformers_model(fields, weights, torch.float32), ids, setting.torch_device)
    theirs = _their_logits(transformers_model(fields, weights, torch.bfloat16), ids, setting.torch_device)
    model = build_model(config, weights, backend, 1024 if not setting.tiny else 64)
    kv = backend.allocate_kv(model.kv_shape(-(-count // PAGE_SIZE), PAGE_SIZE))
    ours = _forward(model, ids, one_sequence(count), kv, torch.arange(count))
    spread = float(exact.std())
    our_error, their_error = (float((found_ - exact).square().mean().sqrt()) / spread for found_ in (ours, theirs))
    found.note(f"bfloat16 logits' error, {LARGE} shape, transformers", their_error, "of their spread")
    found.note(f"bfloat16 logits' error, {LARGE} shape, {kernels}", our_error, "of their spread")
    found.at_most(f"error of {kernels} over that of transformers", our_error / their_error, "", ERROR_RATIO)


@contextmanager
def caught_warnings(logger: str) -> Iterator[list[str]]:
    """What a logger and those below it warn of meanwhile."""
    said: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger(logger).addHandler(handler)
    try:
        yield said
    finally:
        logging.getLogger(logger).removeHandler(handler)


@torch.inference_mode()
def _their_tokens(model: object, prompt: list[int], tokens: int, device: torch.device) -> list[int]:
    ids = torch.tensor([prompt], device=device)
    whole = model.generate(  # type: ignore[attr-defined]
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=False,
        max_new_tokens=tokens,
        min_new_tokens=tokens,
        pad_token_id=0,
        eos_token_id=None,
    )
    return [int(token) for token in whole[0, len(prompt) :]]


@torch.inference_mode()
def _their_logits(model: object, ids: Tensor, device: torch.device) -> Tensor:
    """float32 [tokens, vocabulary], on the CPU."""
    return model(ids[None].to(device)).logits[0].float().cpu()  # type: ignore[operator]


def _forward(model: object, ids: Tensor, layout: object, kv: object, wanted: Tensor) -> Tensor:
    """float32 [tokens, vocabulary], on the CPU."""
    return model.forward(ids, layout, kv, wanted).float().cpu()  # type: ignore[attr-defined]
