"""`Runtime.score` and selects on a real worker, against a plain forward pass of transformers."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import radixrt as rx
from radixrt.client.runtime import Runtime
from radixrt.errors import GenerationFailed, InvalidRequest, PromptTooLong
from radixrt.lang.choices import CHOICES_METHODS
from radixrt.protocol.ids import IdArray, as_ids
from radixrt.text.model_files import ModelFiles
from tests.support.processes import wait_until
from tests.support.reference_logprobs import reference_logprobs

if TYPE_CHECKING:
    from transformers import PreTrainedModel

METHODS = list(CHOICES_METHODS)
CASES = [
    ("route=#", ["any", "billing_desk", "billing_bot"]),
    ("Say the word into: ", ["in", "into", "into it"]),
    ("The best known maker of Linux is ", ["Red", "Red Hat"]),
    ("Dear ", ["Zoe", "Max"]),
    ("Dear", [" Zoe", " Max"]),
    ("Dear", ["  x ", "\ty"]),
    ("Colour: ", ["grey"]),
]


@pytest.fixture(scope="module")
def runtime(tiny_llama: Path) -> Iterator[Runtime]:
    with Runtime(tiny_llama, kernels="reference", dtype="float32", kv_memory=2**23, threads=1) as runtime:
        yield runtime


@pytest.fixture(scope="module")
def oracle(tiny_llama: Path) -> PreTrainedModel:
    import torch
    from transformers import AutoModelForCausalLM

    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(tiny_llama, dtype=torch.float32)
    return model.eval()


@pytest.fixture(scope="module")
def encode(tiny_llama: Path) -> Callable[[str], list[int]]:
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(tiny_llama)
    return lambda text: tokenizer.encode(text, add_special_tokens=False)


@pytest.fixture(autouse=True)
def cold_cache(runtime: Runtime) -> Iterator[None]:
    runtime.flush_cache()
    yield
    stats = runtime.stats()
    assert (stats.running, stats.waiting, stats.leases, stats.pages_owned) == (0, 0, 0, 0)
    assert stats.pages_free + stats.pages_tree == runtime.info.pool_pages


def expected(oracle: PreTrainedModel, ids: Sequence[int], start: int) -> list[float]:
    return reference_logprobs(oracle, as_ids(ids))[start:]


def common(sequences: Sequence[Sequence[int]]) -> int:
    """The longest common prefix, shortened so that every sequence keeps something."""
    most = min(map(len, sequences)) - 1
    return next((i for i in range(most) if len({ids[i] for ids in sequences}) > 1), most)


@rx.function
def pick(s: Any, prompt: str, options: list[str], method: str = "token_length_normalized") -> None:
    s += prompt + rx.select("x", options, choices_method=method)


@pytest.mark.parametrize(("prompt", "options"), CASES)
@pytest.mark.parametrize("method", METHODS)
def test_scores_of_options_are_those_of_a_forward_pass(
    prompt: str,
    options: list[str],
    method: str,
    runtime: Runtime,
    oracle: PreTrainedModel,
    encode: Callable[[str], list[int]],
) -> None:
    """D02, D06, D07: tokens after the longest common prefix, conditioned on it."""
    whole = [encode(prompt + option) for option in options]
    shared = common(whole)
    s = pick.run(prompt, options, method, backend=runtime)
    assert s["x"] in options
    assert s.text() == prompt + s["x"]
    meta = s.get_meta_info("x")
    assert meta["choices_method"] == method
    assert meta["prefix_tokens"] == shared
    for index, ids in enumerate(whole):
        entries = meta["input_token_logprobs"][index]
        assert [token for _, token, _ in entries] == ids[shared:]
        reference = expected(oracle, ids, shared)
        assert math.isclose(sum(value for value, _, _ in entries), sum(reference), abs_tol=1e-3)
        assert math.isclose(meta["normalized_prompt_logprobs"][index], float(np.mean(reference)), abs_tol=1e-3)
        if method == "unconditional_likelihood_normalized":
            alone = [value or 0.0 for value, _, _ in meta["unconditional_token_logprobs"][index]]
            bare = [0.0, *expected(oracle, ids[shared:], 1)]
            assert np.allclose(alone, bare, atol=1e-3)
            gain = meta["normalized_unconditional_prompt_logprobs"][index]
            assert math.isclose(gain, float(np.mean(np.subtract(reference, bare))), abs_tol=1e-3)


def test_the_same_select_again_has_the_same_scores_from_the_cache(runtime: Runtime) -> None:
    """D05"""
    prompt = "The tide comes in twice a day, and the harbour fills with boats: "
    metas = []
    for options in (["yes", "no"], ["yes", "no"], ["yes", "yes", "no"]):
        s = pick.run(prompt, options, backend=runtime)
        metas.append((s["x"], s.get_meta_info("x")))
    (first, cold), (second, warm), (third, double) = metas
    assert warm["cached_tokens"] == 2 * (warm["prefix_tokens"] - 1) > cold["cached_tokens"]
    assert first == second == third
    for meta in (warm, double):
        assert meta["input_token_logprobs"] == cold["input_token_logprobs"]
        assert meta["choices"] == ["yes", "no"]


def test_programs_side_by_side_have_the_scores_that_they_have_alone(runtime: Runtime) -> None:
    """D03"""
    shared = "Mark each answer. " * 12
    prompts = [f"{shared}Answer {i}: {i * 37 % 19} boats. Mark:" for i in range(24)]
    options = [" pass", " fail"]
    with ThreadPoolExecutor(24) as pool:
        crowded = list(pool.map(lambda prompt: pick.run(prompt, options, backend=runtime), prompts))
    for prompt, s in list(zip(prompts, crowded, strict=True))[::4]:
        runtime.flush_cache()
        alone = pick.run(prompt, options, backend=runtime)
        assert s["x"] == alone["x"]
        both = [state.get_meta_info("x")["input_token_logprobs"] for state in (s, alone)]
        assert both[0] == both[1]


def test_a_generation_continues_the_chosen_tokens(runtime: Runtime, encode: Callable[[str], list[int]]) -> None:
    @rx.function
    def program(s: Any) -> None:
        s += "The keeper writes the " + rx.select("x", ["hour", "wind"]) + " into"
        forks = s.fork(2)
        forks += rx.gen("g", max_tokens=5, temperature=0, ignore_eos=True)
        forks.join()

    s = program.run(backend=runtime)
    context = [*encode("The keeper writes the " + s["x"]), *encode(" into")]
    plain = runtime.generate(context, {"max_tokens": 5, "temperature": 0, "ignore_eos": True})
    assert s["g"] == [plain.text, plain.text]
    assert program.run(backend=runtime)["g"] == s["g"]


def test_a_prompt_that_is_too_long_fails_the_select(runtime: Runtime) -> None:
    s = pick.run("tide " * 3000, ["a", "b"], backend=runtime)
    with pytest.raises(GenerationFailed) as caught:
        s["x"]
    assert isinstance(caught.value.__cause__, PromptTooLong)


@pytest.mark.parametrize("start", [0, 1, 7, 12])
def test_a_prompts_own_tokens_are_scored_from_anywhere(
    start: int, runtime: Runtime, oracle: PreTrainedModel, encode: Callable[[str], list[int]]
) -> None:
    """C12"""
    prompt = "A keeper writes the hour, the wind and the names."
    ids = encode(prompt)
    for warm in (False, True):
        scores = runtime.score(prompt, start=start)
        assert scores.tokens.ids.tolist() == ids[start:]
        assert scores.usage.cached_tokens == (max(start - 1, 0) if warm else 0)
        values = list(scores.tokens.logprobs)
        assert (values[0] is None) == (start == 0)
        assert np.allclose(values[start == 0 :], expected(oracle, ids, max(start, 1)), atol=1e-3)  # type: ignore[arg-type]
    assert runtime.score(ids, start=len(ids)).tokens.logprobs == ()
    assert runtime.score(as_ids(ids)).tokens.total == pytest.approx(sum(expected(oracle, ids, 1)), abs=1e-3)


def test_options_can_be_scored_without_a_program(runtime: Runtime, oracle: PreTrainedModel) -> None:
    scores = runtime.score("Yes or no? ", ["yes", "no", "yes"], unconditional=True)
    assert [option.text for option in scores.options] == ["yes", "no", "yes"]
    assert scores.options[0].tokens.logprobs == scores.options[2].tokens.logprobs
    assert scores.best.text in ("yes", "no")
    first = scores.options[0]
    assert first.unconditional is not None
    assert first.unconditional.logprobs[0] is None
    assert first.unconditional.ids.tolist() == first.tokens.ids.tolist()
    plain = asyncio.run(runtime.ascore("Yes or no? ", ["yes", "no"]))
    assert plain.options[0].unconditional is None
    assert plain.options[1].tokens.logprobs == scores.options[1].tokens.logprobs
    given = runtime.score([5, 6, 7], ["yes", "no"])
    assert given.prefix_tokens >= 3
    assert isinstance(given.options[0].tokens.ids, np.ndarray)


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"prompt": "abc", "start": -1}, "start"),
        ({"prompt": "abc", "start": 99}, "start"),
        ({"prompt": "abc", "start": "x"}, "start"),
        ({"prompt": "abc", "start": True}, "start"),
        ({"prompt": "abc", "options": []}, "choices"),
        ({"prompt": "abc", "options": "yes"}, "choices"),
        ({"prompt": "abc", "options": ["a", ""]}, "choices[1]"),
        ({"prompt": "abc", "options": ["a"], "start": 1}, "start"),
        ({"prompt": "abc", "unconditional": True}, "unconditional"),
        ({"prompt": [1, 99999], "options": ["a"]}, "prompt"),
        ({"prompt": ["a", 1]}, "prompt"),
    ],
)
def test_what_cannot_be_scored_is_refused_by_name(arguments: dict[str, Any], field: str, runtime: Runtime) -> None:
    with pytest.raises(InvalidRequest) as caught:
        runtime.score(**arguments)
    assert caught.value.field == field


def test_to_cancel_a_scoring_is_to_abort_it(runtime: Runtime) -> None:
    async def cancelled() -> None:
        call = asyncio.create_task(runtime.ascore([7] * 1900, [f"{i} boats" for i in range(8)]))
        await asyncio.sleep(0.05)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    asyncio.run(cancelled())
    wait_until(lambda: runtime.stats().running + runtime.stats().waiting == 0, 30)


@pytest.mark.parametrize(
    ("cases", "words"),
    [(CASES[:1], ["into"]), pytest.param(CASES, ["in", "into", "into it"], marks=pytest.mark.long)],
)
def test_the_default_model_scores_options_like_transformers(
    cases: list[tuple[str, list[str]]],
    words: list[str],
    smollm2_files: ModelFiles,
    smollm2_oracle: PreTrainedModel,
) -> None:
    """D02, and D06: each option is chosen where the prompt favours it."""
    from radixrt.text.tokenizer import load_tokenizer

    tokenizer = load_tokenizer(smollm2_files)
    with Runtime("smollm2-135m", dtype="float32", kv_memory=2**27, threads=1) as runtime:
        for prompt, options in cases:
            scores = runtime.score(prompt, options)
            whole: list[IdArray] = [tokenizer.encode(prompt + option) for option in options]
            assert scores.prefix_tokens == common([ids.tolist() for ids in whole])
            for option, ids in zip(scores.options, whole, strict=True):
                assert option.tokens.ids.tolist() == ids[scores.prefix_tokens :].tolist()
                reference = reference_logprobs(smollm2_oracle, ids)[scores.prefix_tokens :]
                assert math.isclose(option.tokens.total, sum(reference), abs_tol=1e-3)
        for wanted in words:
            repeated = f"Repeat after me: {wanted}\n" * 6 + "Repeat after me: "
            s = pick.run(repeated, ["in\n", "into\n", "into it\n"], backend=runtime)
            assert s["x"] == wanted + "\n"
