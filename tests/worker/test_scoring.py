"""Scored nodes in the worker: against transformers on real weights, and in request trees on the simulated model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from radixrt.config import WorkerConfig
from radixrt.protocol.events import Failed, Logprobs, Scored
from radixrt.protocol.ids import IdArray, as_ids, pack_ids
from radixrt.protocol.messages import Abort, SubmitTree, TreeNode
from radixrt.protocol.options import Options
from radixrt.protocol.sampling import SamplingParams
from radixrt.protocol.segments import Ids
from radixrt.text.model_files import ModelFiles
from radixrt.worker.build import build_engine
from radixrt.worker.engine import Engine
from radixrt.worker.scoring import ScoreCompletion
from tests.support.reference_logprobs import reference_logprobs
from tests.support.simulated_model import fingerprint, logprob
from tests.worker.test_programs import CLIENT, GREEDY, Harness, node

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def engine_of(model: str, dtype: str, step_tokens: int) -> Engine:
    return build_engine(WorkerConfig(model=model, dtype=dtype, kv_memory=2**26, step_tokens=step_tokens))[0]  # type: ignore[arg-type]


def score(engine: Engine, prompt: IdArray, first: int = 0) -> ScoreCompletion:
    request = engine.add_scoring(prompt, first)
    while engine.busy:
        for event in engine.step():
            if isinstance(event, ScoreCompletion) and event.request == request:
                return event
    raise AssertionError("no score came")


@pytest.mark.parametrize("name", ["tiny_llama", "tiny_mistral", "tiny_qwen2", "tiny_qwen3"])
def test_log_probabilities_are_those_of_transformers(name: str, request: pytest.FixtureRequest) -> None:
    from transformers import AutoModelForCausalLM

    folder: Path = request.getfixturevalue(name)
    oracle = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    prompt = as_ids(np.random.default_rng(0).integers(3, 500, 60))
    ours = score(engine_of(str(folder), "float32", 17), prompt).logprobs
    assert ours[0] is None
    assert np.allclose(ours[1:], reference_logprobs(oracle, prompt)[1:], atol=1e-4)  # type: ignore[arg-type]


def test_the_default_model_scores_a_sentence_like_transformers(
    smollm2_files: ModelFiles, smollm2_oracle: PreTrainedModel
) -> None:
    from radixrt.text.tokenizer import load_tokenizer

    prompt = load_tokenizer(smollm2_files).encode("The capital of France is Paris, and that of Italy is Rome.")
    ours = score(engine_of(str(smollm2_files.gguf), "float32", 512), prompt, 3)
    assert np.allclose(ours.logprobs, reference_logprobs(smollm2_oracle, prompt)[3:], atol=1e-3)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_cold_warm_chunked_and_crowded_scores_have_the_same_bits(tiny_llama: Path, dtype: str) -> None:
    """C12: equal as bits, not nearly."""
    rng = np.random.default_rng(1)
    prompt = as_ids(rng.integers(3, 500, 90))
    others = [as_ids(np.concatenate([prompt[:50], rng.integers(3, 500, int(n))])) for n in rng.integers(5, 60, 9)]
    engine = engine_of(str(tiny_llama), dtype, 512)
    cold = score(engine, prompt)
    for first in (0, 1, 20, 89, 90):
        warm = score(engine, prompt, first)
        assert warm.usage.cached_tokens == max(first - 1, 0)
        assert warm.logprobs == cold.logprobs[first:]
    for chunk in (1, 16, 33):
        assert score(engine_of(str(tiny_llama), dtype, chunk), prompt).logprobs == cold.logprobs
    crowd = engine_of(str(tiny_llama), dtype, 48)
    for i, other in enumerate(others):
        crowd.add(other, SamplingParams(max_tokens=20, ignore_eos=True), seed=i)
    for _ in range(4):
        crowd.step()
    crowded = score(crowd, prompt, 55)
    assert crowded.usage.cached_tokens >= 50
    assert crowded.logprobs == cold.logprobs[55:]


# Request trees, on the simulated model


def scored(number: int, parent: int | None, ids: list[int], first: int = 0) -> TreeNode:
    return TreeNode(number, parent, (Ids(pack_ids(ids)),), score=first)


def scores(harness: Harness, number: int) -> Logprobs:
    (event,) = [event for event in harness.events if isinstance(event, Scored) and event.node == number]
    return event.logprobs


def expected(tokens: list[int], first: int) -> Logprobs:
    return tuple(
        None if i == 0 else logprob(fingerprint(tokens[:i]), tokens[i]) for i in range(len(tokens)) if i >= first
    )


def test_options_below_a_fork_point_are_scored_behind_its_tokens() -> None:
    harness = Harness()
    prompt = list(range(1, 40))
    harness.submit(node(1, None, prompt, None), *(scored(2 + i, 1, [50 + i, 60]) for i in range(4)))
    harness.run()
    for i in range(4):
        assert scores(harness, 2 + i) == expected([*prompt, 50 + i, 60], 39)
    assert harness.scheduler.counters.tokens_computed < len(prompt) + 4 * 4


def test_a_scored_node_behind_a_generation_scores_its_own_ids_alone() -> None:
    harness = Harness()
    harness.submit(node(1, None, [1, 2]), scored(2, 1, [3, 4, 5], 1))
    harness.run()
    context = [1, 2, *harness.output(1), 3, 4, 5]
    assert scores(harness, 2) == expected(context, len(context) - 2)


def test_a_child_continues_a_scored_node() -> None:
    harness = Harness()
    harness.submit(scored(1, None, [1, 2, 3]), node(2, 1, [4]), scored(3, 1, [9]))
    harness.run()
    alone = Harness()
    alone.submit(node(2, None, [1, 2, 3, 4]))
    alone.run()
    assert harness.output(2) == alone.output(2)
    assert scores(harness, 1) == expected([1, 2, 3], 0)
    assert scores(harness, 3) == expected([1, 2, 3, 9], 3)


def test_a_scored_node_fails_with_what_it_continues() -> None:
    harness = Harness()
    harness.submit(node(1, None, [1], SamplingParams(top_p=2.0)), scored(2, 1, [3]), node(3, 2, [4]))
    harness.run()
    for number in (1, 2, 3):
        (end,) = harness.ends(number).values()
        assert isinstance(end, Failed)
        assert end.field == "top_p"


@pytest.mark.parametrize(("first", "field"), [(-1, "score"), (3, "score")])
def test_a_first_id_that_the_node_lacks_is_refused(first: int, field: str) -> None:
    harness = Harness()
    harness.submit(scored(1, None, [1, 2], first))
    harness.run()
    end = harness.ends(1)[0]
    assert isinstance(end, Failed)
    assert end.field == field


@pytest.mark.parametrize(
    "bad",
    [
        TreeNode(1, None, (Ids(pack_ids([1])),), sampling=GREEDY, score=0),
        TreeNode(1, None, (Ids(pack_ids([1])),), select=Options(("a",))),
    ],
)
def test_a_node_that_a_worker_cannot_do_is_refused(bad: TreeNode) -> None:
    harness = Harness()
    harness.submit(bad, node(2, None, [1, 2]))
    harness.run()
    assert isinstance(harness.ends(1)[0], Failed)
    assert len(harness.output(2)) == 6


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_an_abort_ends_a_scored_node_in_every_state(steps: int) -> None:
    """Blocked by its parent, waiting, prefilling."""
    harness = Harness()
    harness.submit(node(1, None, [1]), scored(2, 1, [3] * 200), scored(3, None, list(range(1, 201))))
    harness.run(steps)
    harness.programs.abort(CLIENT, Abort(1))
    harness.run()
    kinds = {number: [end.kind for end in harness.ends(number).values()] for number in (1, 2, 3)}  # type: ignore[union-attr]
    assert kinds == {1: ["Aborted"], 2: ["Aborted"], 3: ["Aborted"]}
    assert not harness.engine.busy
    assert (harness.cache.owned_pages, harness.cache.leases) == (0, 0)


def test_a_closed_program_is_scored_no_further() -> None:
    harness = Harness()
    harness.submit(scored(1, None, list(range(1, 201))))
    harness.run(1)
    harness.programs.drop_client(CLIENT)
    assert not harness.engine.busy
    assert (harness.cache.owned_pages, harness.cache.leases) == (0, 0)
    harness.programs.submit(CLIENT, SubmitTree(1, (scored(1, None, [1, 2]),)))
    harness.run()
    assert scores(harness, 1) == expected([1, 2], 0)
