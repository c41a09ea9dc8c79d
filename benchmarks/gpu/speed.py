"""Parts of the device check that measure, as shares of what the device does at best in the same run."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import numpy as np
import torch

from benchmarks.gpu.clock import seconds, seconds_in_a_row, seconds_on_device
from benchmarks.gpu.engines import endless, engine_of, first_token_seconds
from benchmarks.gpu.findings import Findings
from benchmarks.gpu.models import LARGE, PAGE_SIZE, layout_of, matrix_bytes, matrix_elements, model_fields, random_model
from benchmarks.gpu.setting import Setting
from radixrt.kernels.interface import AttentionShape, KvShape
from radixrt.kernels.paged_pool import PagedPool
from radixrt.model.llama import Model
from radixrt.protocol.ids import as_ids
from radixrt.protocol.plan import StepPlan
from radixrt.worker.engine import Progress
from radixrt.worker.executor import ModelExecutor

BANDWIDTH, RATE = "memory bandwidth, copying", "bfloat16 product of squares"
DECODE_SHARE, PREFILL_SHARE, CASCADE_GAIN, GAP = 0.75, 0.55, 4.0, 100.0
"""Targets: of decode at batch 1 and of the longest prefill, as shares; of cascade over plain; microseconds."""
_ROUNDS = 20


def machine(setting: Setting, found: Findings) -> None:
    """What the device copies and multiplies in a second."""
    device = setting.torch_device
    count, side = (2**16, 64) if setting.tiny else (2**31, 8192)
    source = torch.ones(count, dtype=torch.bfloat16, device=device)
    target = torch.empty_like(source)
    copying = seconds_in_a_row(device, lambda: target.copy_(source), _ROUNDS)
    found.note(BANDWIDTH, 2 * source.nbytes / copying, "B/s")
    squares = [torch.randn(side, side, device=device, dtype=torch.bfloat16) for _ in range(2)]
    multiplying = seconds_in_a_row(device, lambda: torch.mm(*squares), _ROUNDS)
    found.note(RATE, 2 * side**3 / multiplying, "op/s")


def decode(setting: Setting, kernels: str, found: Findings) -> None:
    """Steps of one token for so many requests of 1,024 tokens each, one after another."""
    model, device = _large(setting, kernels, 1024), setting.torch_device
    batches, context = ((1, 3), 40) if setting.tiny else ((1, 16, 64, 256), 1024)
    pages = -(-context // PAGE_SIZE)
    kv = _filled(model, batches[-1] * pages)
    token_bytes = model.kernels.kv_bytes(model.kv_shape(1, 1))
    for batch in batches:
        order = np.random.default_rng(0).permutation(batch * pages).reshape(batch, pages)
        layout = layout_of([1] * batch, [context] * batch, list(order))
        ids, wanted = torch.zeros(batch, dtype=torch.int64, device=device), torch.arange(batch, device=device)
        step = seconds_in_a_row(device, lambda: model.forward(ids, layout, kv, wanted), _rounds(setting))  # noqa: B023
        what = f"decode, batch {batch}, {kernels}"
        found.note(what, step * 1e3, "ms a step")
        moved = matrix_bytes(model) + batch * context * token_bytes
        least = DECODE_SHARE if batch == 1 else None
        _share(setting, found, what, moved / step, setting.bandwidth, "of bandwidth", least)


def prefill(setting: Setting, kernels: str, found: Findings) -> None:
    """One prompt in one step."""
    lengths = (16, 40) if setting.tiny else (2048, 8192)
    model, device = _large(setting, kernels, lengths[-1]), setting.torch_device
    kv = _filled(model, -(-lengths[-1] // PAGE_SIZE))
    config = model.config
    for length in lengths:
        layout = layout_of([length], [length], [np.arange(-(-length // PAGE_SIZE))])
        ids, wanted = torch.zeros(length, dtype=torch.int64, device=device), torch.tensor([length - 1], device=device)
        step = seconds(device, lambda: model.forward(ids, layout, kv, wanted), _rounds(setting))  # noqa: B023
        # Two products of queries with what they see, half of all pairs on average.
        attention = 2 * config.layers * config.heads * config.head_dim * length**2
        operations = 2 * matrix_elements(model) * length + attention
        what = f"prefill of {length}, {kernels}"
        found.note(what, length / step, "tokens/s")
        least = PREFILL_SHARE if length == lengths[-1] else None
        _share(setting, found, what, operations / step, setting.rate, "of the bfloat16 rate", least)


def cascade(setting: Setting, kernels: str, found: Findings) -> None:
    """Attention of one layer for branches of one prefix, against that for as many tokens that share no page."""
    branches, shared = (4, 160) if setting.tiny else (64, 8192)
    heads, kv_heads, head_dim = (4, 2, 16) if setting.tiny else (32, 8, 128)
    shape = AttentionShape(heads, kv_heads, head_dim, head_dim**-0.5)
    backend = setting.load(kernels, "bfloat16")
    pages = shared // PAGE_SIZE
    kv = backend.allocate_kv(KvShape(1, branches * (pages + 1), PAGE_SIZE, kv_heads, head_dim))
    q = torch.randn(branches, heads, head_dim, device=setting.torch_device, dtype=torch.bfloat16)
    of_all = np.arange(branches * (pages + 1)).reshape(branches, pages + 1)
    of_branches = of_all.copy()
    of_branches[:, :pages] = np.arange(pages)
    times = []
    for tables in (of_branches, of_all):
        layout = layout_of([1] * branches, [shared + 1] * branches, list(tables))
        start = time.perf_counter()
        plan = backend.plan(layout)
        backend.attend(q, kv, 0, plan, shape)
        planned = time.perf_counter() - start
        # As it is launched in a decode step's graph: Python takes longer for these launches than the device does.
        times.append(
            seconds_on_device(
                setting.torch_device,
                lambda: backend.attend(q, kv, 0, plan, shape),  # noqa: B023
                _rounds(setting),
            )
        )
        found.note(f"first attention of a step, planned, {kernels}", planned * 1e6, "us")
    what = f"{branches} branches over {shared} shared tokens, {kernels}"
    found.note(what, times[0] * 1e6, "us a layer")
    _ask(setting, found.at_least, what, times[1] / times[0], "x plain", CASCADE_GAIN)


def cached(setting: Setting, kernels: str, found: Findings) -> None:
    """The first token of a long prompt, cold, and of another that begins as it does."""
    length, tail = (48, 8) if setting.tiny else (7680, 64)
    model = _large(setting, kernels, length + 128)
    pages = 8 * (length + 128) // PAGE_SIZE
    engine = engine_of(ModelExecutor(model, model.kernels, pages, PAGE_SIZE), model, pages, depth=1)
    rng = np.random.default_rng(0)
    draw = lambda count: rng.integers(0, model.config.vocabulary_size, count).tolist()  # noqa: E731
    first_token_seconds(engine, draw(length + tail))
    colds, warms = [], []
    for _ in range(3):
        stem = draw(length)
        colds.append(first_token_seconds(engine, stem + draw(tail)))
        warms.append(first_token_seconds(engine, stem + draw(tail)))
    found.note(f"first token after {length + tail} tokens, cold, {kernels}", median(colds) * 1e3, "ms")
    found.note(f"... {length} of them cached, {kernels}", median(warms) * 1e3, "ms")
    _ask(setting, found.at_least, f"cold over cached, {kernels}", median(colds) / median(warms), "x", 2.0)


class _Stamped:
    """An executor that stamps the start and the end of each step on the device."""

    def __init__(self, executor: ModelExecutor, device: torch.device) -> None:
        self._executor, self._device = executor, device
        self.stamps: list[tuple[torch.cuda.Event, torch.cuda.Event] | tuple[float, float]] = []

    def submit(self, plan: StepPlan) -> object:
        if self._device.type != "cuda":
            start = time.perf_counter()
            result = self._executor.submit(plan)
            self.stamps.append((start, time.perf_counter()))
            return result
        events = (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True))
        events[0].record()
        result = self._executor.submit(plan)
        events[1].record()
        self.stamps.append(events)
        return result

    def gaps(self) -> list[float]:
        """Seconds from the end of each step to the start of the next."""
        pairs = zip(self.stamps, self.stamps[1:], strict=False)
        if self._device.type != "cuda":
            return [after[0] - before[1] for before, after in pairs]  # type: ignore[operator]
        torch.cuda.synchronize(self._device)
        return [before[1].elapsed_time(after[0]) / 1e3 for before, after in pairs]  # type: ignore[union-attr, arg-type]


def gaps(setting: Setting, kernels: str, found: Findings) -> None:
    """How long the device waits between decode steps of a whole engine."""
    batch, prompt, steps = (4, 8, 6) if setting.tiny else (64, 128, 64)
    model = _large(setting, kernels, 512)
    pages = batch * (-(-(prompt + steps + 40) // PAGE_SIZE) + 1)
    stamped = _Stamped(ModelExecutor(model, model.kernels, pages, PAGE_SIZE), setting.torch_device)
    depth = 1 if setting.device == "cpu" else 2
    engine = engine_of(stamped, model, pages, depth)  # type: ignore[arg-type]
    rng = np.random.default_rng(0)
    waiting = {
        engine.add(as_ids(rng.integers(0, model.config.vocabulary_size, prompt)), endless(steps + 20), seed=0)
        for _ in range(batch)
    }
    while waiting:
        waiting -= {event.request for event in engine.step() if isinstance(event, Progress)}
    # What starts is no step like others, and Triton compiles for it.
    for _ in range(3):
        engine.step()
    stamped.stamps.clear()
    start = time.perf_counter()
    for _ in range(steps - 4):
        engine.step()
    step = (time.perf_counter() - start) / (steps - 4)
    between = stamped.gaps()
    found.note(f"step of the engine, batch {batch}, {kernels}", step * 1e3, "ms")
    what = f"between steps, batch {batch}, {kernels}"
    found.note(f"{what}, longest", max(between) * 1e6, "us")
    _ask(setting, found.at_most, what, median(between) * 1e6, "us", GAP)


def _large(setting: Setting, kernels: str, context: int) -> Model:
    fields = model_fields(LARGE, tiny=setting.tiny)
    return random_model(fields, setting.load(kernels, "bfloat16"), context + PAGE_SIZE)


def _filled(model: Model, pages: int) -> object:
    """A pool of random numbers: zeros take less power, and are multiplied faster."""
    kv = model.kernels.allocate_kv(model.kv_shape(pages, PAGE_SIZE))
    if isinstance(kv, PagedPool):
        kv.data.normal_()
    return kv


def _rounds(setting: Setting) -> int:
    return 1 if setting.tiny else _ROUNDS


def _share(
    setting: Setting, found: Findings, what: str, value: float, best: float | None, unit: str, least: float | None
) -> None:
    if best is None:
        return
    if least is None:
        found.note(what, value / best, unit)
    else:
        _ask(setting, found.at_least, what, value / best, unit, least)


def _ask(
    setting: Setting, ask: Callable[[str, float, str, float], None], what: str, value: float, unit: str, bound: float
) -> None:
    """Ask it of a device; on tiny shapes speeds mean nothing, and whatever it is will do."""
    ask(what, value, unit, bound if not setting.tiny else (0.0 if ask.__name__ == "at_least" else float("inf")))
