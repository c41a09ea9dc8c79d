"""The rows that the program shapes cost on a real model, counted where its kernels write them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from benchmarks.programs.bound import bound_of
from benchmarks.programs.model import Language
from benchmarks.programs.recording import record
from benchmarks.programs.replay import Replay
from benchmarks.programs.shapes import SHAPES
from radixrt.config import WorkerConfig
from radixrt.kernels.reference.backend import ReferenceBackend
from radixrt.protocol.plan import StepPlan, StepResult
from radixrt.worker import build
from radixrt.worker.build import build_engine
from radixrt.worker.executor import ModelExecutor
from radixrt.worker.programs import Programs
from tests.support.tiny_models import make_tiny_model


class WatchedExecutor(ModelExecutor):
    """Shows its plans."""

    def submit(self, plan: StepPlan) -> StepResult:
        KernelWorker.on_plan(plan)
        return super().submit(plan)


class KernelWorker:
    """A worker in this process, on a real model. Only one at a time is watched."""

    on_plan: Callable[[StepPlan], None]

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path, kv_memory: int, *, reuse: bool) -> None:
        self.rows_written = 0
        KernelWorker.on_plan = staticmethod(lambda plan: None)
        monkeypatch.setattr(build, "ModelExecutor", WatchedExecutor)
        write = ReferenceBackend.rotary_write_kv

        def count(
            backend: Any, q: Tensor, k: Tensor, v: Tensor, cos_sin: Tensor, kv: Any, layer: int, p: Any
        ) -> Tensor:
            if layer == 0:
                self.rows_written += len(k)
            return write(backend, q, k, v, cos_sin, kv, layer, p)

        monkeypatch.setattr(ReferenceBackend, "rotary_write_kv", count)
        config = WorkerConfig(
            model=str(folder),
            dtype="float32",
            kernels="reference",
            kv_memory=kv_memory,
            prefix_cache=reuse,
            eviction_policy="program",
        )
        engine, self.welcome = build_engine(config)
        self.programs = Programs(engine, self.welcome)

    def watch(self, on_plan: Callable[[StepPlan], None]) -> None:
        KernelWorker.on_plan = staticmethod(on_plan)


@pytest.fixture(scope="module")
def language() -> Language:
    return Language()


@pytest.fixture(scope="module")
def model(language: Language, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random Llama that speaks the shapes' language."""
    size = language.tokenizer.vocabulary_size
    folder = make_tiny_model(tmp_path_factory.mktemp("shapes"), "llama", vocab_size=size)
    language.source.save(str(folder / "tokenizer.json"))
    return folder


@pytest.mark.parametrize("name", ["few-shot select", "skeleton of thought", "judge", "JSON decoding"])
def test_the_kernels_write_each_prefix_once(
    name: str, language: Language, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = KernelWorker(monkeypatch, model, 2**24, reuse=False)
    runs = record(SHAPES[name], 2, 1, alone, language.frontend)
    bound = bound_of(runs, alone.welcome.page_size)
    assert alone.rows_written == bound.fed > 1.2 * bound.rows
    page_bytes = alone.welcome.kv_bytes // alone.welcome.pool_pages

    monkeypatch.undo()
    worker = KernelWorker(monkeypatch, model, bound.pages * page_bytes, reuse=True)
    assert worker.welcome.pool_pages == bound.pages
    outcome = Replay(runs, worker, at_once=2).run()
    assert bound.rows <= outcome.rows <= 1.01 * bound.rows
    assert outcome.rows == worker.programs.stats().tokens_computed
