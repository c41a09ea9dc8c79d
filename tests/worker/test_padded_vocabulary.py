"""A model whose embedding has more rows than the tokenizer has tokens, as many published ones do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from radixrt.config import WorkerConfig
from radixrt.protocol.constraint import Regex
from radixrt.protocol.ids import as_ids
from radixrt.protocol.sampling import SamplingParams
from radixrt.worker.build import build_engine
from radixrt.worker.engine import Completion, Engine, Failure
from radixrt.worker.executor import ModelExecutor
from tests.support.tiny_models import VOCABULARY_SIZE, make_tiny_model

PADDED_SIZE = 768


@pytest.fixture(scope="module")
def padded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("padded"), "llama", vocab_size=PADDED_SIZE)


def answers(engine: Engine) -> list[int]:
    """The ids of many answers, one after another."""
    rng = np.random.default_rng(3)
    for seed in range(12):
        for params in (
            SamplingParams(max_tokens=12, ignore_eos=True, logprobs=5),
            SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True),
            SamplingParams(max_tokens=12, constraint=Regex("[a-z ]{9,}")),
        ):
            engine.add(as_ids(rng.integers(3, VOCABULARY_SIZE, 20)), params, seed=seed)
    ids: list[int] = []
    while engine.busy:
        for event in engine.step():
            assert not isinstance(event, Failure), event
            if isinstance(event, Completion):
                ids += event.output.tolist()
    return ids


def test_a_model_with_more_ids_than_tokens_gives_tokens_only(padded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = WorkerConfig(model=str(padded), dtype="float32", kernels="reference", kv_memory=2**22, threads=1)
    assert max(answers(build_engine(config)[0])) < VOCABULARY_SIZE

    make = ModelExecutor.__init__
    monkeypatch.setattr(ModelExecutor, "__init__", lambda self, *parts: make(self, *parts[:-1]))
    with pytest.raises((IndexError, KeyError, ValueError, AssertionError)):
        assert max(answers(build_engine(config)[0])) < VOCABULARY_SIZE, "nobody was tempted"
