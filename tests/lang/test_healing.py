"""D17: a constrained or free generation whose prompt ends inside a usual token, healed and not."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import radixrt as rx
from radixrt.client.backend import EVERYTHING, HEALING_RUNTIME
from radixrt.lang import ProgramState, assistant, function, gen, raw, select, user
from radixrt.text.tokenizer import Tokenizer
from tests.lang.scripted import Scripted


@function
def write(s: ProgramState, prompt: str, gen_options: dict[str, Any]) -> None:
    s += prompt + gen("x", return_logprob=True, return_text_in_logprobs=True, **gen_options)
    s += "!" + gen("next", max_tokens=1, logprob_start_len=0, return_text_in_logprobs=True, heal=False)


def told(s: ProgramState, name: str, key: str) -> list[str]:
    """The texts of the tokens that a gen tells of."""
    meta = s.get_meta_info(name)
    assert isinstance(meta, dict)
    return [text for _, _, text in meta[key]]


CASES = [
    ("age: ", {"regex": "[0-9]{2}"}),
    ("age:", {"regex": " [0-9]{2}"}),
    ('{"a":', {"json_schema": {"type": "string", "maxLength": 4}, "max_tokens": 40}),
    ('{"a": ', {"json_schema": {"type": "object", "properties": {"b": {"type": "boolean"}}, "required": ["b"]}}),
    ("http:", {"regex": "//[a-z]{1,8}"}),
    ("The url is http:", {"max_tokens": 6}),
    ("I am hap", {"max_tokens": 3, "stop": ["y"]}),
    ("one, two, thr", {"max_tokens": 8, "stop_regex": "[0-9.]"}),
    ("Pick: ", {"regex": "(red|green)( hat)?"}),
    ("naïve caf", {"max_tokens": 3}),
    ("\n\n", {"regex": "[a-z]+\n", "max_tokens": 4}),
    ("end", {"regex": "(ing)?"}),
]


@pytest.mark.parametrize("heal", [False, True])
@pytest.mark.parametrize(("prompt", "options"), CASES)
def test_the_text_is_the_prompt_and_then_the_match(
    runtime: rx.Runtime, tokenizer: Tokenizer, prompt: str, options: dict[str, Any], heal: bool
) -> None:
    for seed in range(3):
        s = write.run(prompt, options | {"seed": seed, "heal": heal}, backend=runtime)
        assert s.text() == prompt + s["x"] + "!" + s["next"]
        next_meta, meta = s.get_meta_info("next"), s.get_meta_info("x")
        assert isinstance(next_meta, dict)
        assert isinstance(meta, dict)
        context = [token for _, token, _ in next_meta["input_token_logprobs"]]
        assert tokenizer.decode(context) == prompt + s["x"] + "!"
        if "regex" in options and meta["finish_reason"] == "stop":
            assert re.fullmatch(options["regex"], s["x"])
        if "json_schema" in options and meta["finish_reason"] == "stop":
            json.loads(s["x"])
        count = len(tokenizer.encode(prompt, starts_context=True))
        assert meta["prompt_tokens"] == (count - 1 if heal and count > 1 else count)


def test_a_token_that_says_more_than_the_prompt_comes_in_its_place(runtime: rx.Runtime) -> None:
    """The page's example: `://` is a token, which "http:" has cut."""
    plain, healed = (
        write.run("The url is http:", {"max_tokens": 6, "temperature": 0, "heal": heal}, backend=runtime)
        for heal in (False, True)
    )
    assert told(healed, "x", "output_token_logprobs")[0] == "://"
    assert healed["x"].startswith("//")
    assert not plain["x"].startswith("//")


def test_a_prompt_that_ends_in_a_space_goes_on_with_a_word(runtime: rx.Runtime) -> None:
    s = write.run("Once upon a ", {"max_tokens": 3, "temperature": 0, "heal": True}, backend=runtime)
    assert told(s, "x", "output_token_logprobs")[0] == " time"
    assert s["x"].startswith("time")


def test_the_token_that_is_drawn_anew_counts_for_no_limit(runtime: rx.Runtime) -> None:
    for limits in ({"max_tokens": 1}, {"max_tokens": 4, "min_tokens": 4}):
        s = write.run("I am hap", {**limits, "heal": True, "temperature": 0}, backend=runtime)
        meta = s.get_meta_info("x")
        assert isinstance(meta, dict)
        assert meta["completion_tokens"] == limits["max_tokens"] + 1
        assert meta["finish_reason"] == "length"


def test_each_of_several_choices_is_healed(runtime: rx.Runtime) -> None:
    @function
    def several(s: ProgramState) -> None:
        s += "The url is http:" + gen("x", n=4, regex="//[a-z]{2}", heal=True, return_logprob=True)
        s += " and" + gen("y", max_tokens=2)

    s = several.run(backend=runtime, return_text_in_logprobs=True, seed=1)
    metas = s.get_meta_info("x")
    assert isinstance(metas, list)
    assert {meta["output_token_logprobs"][0][2] for meta in metas} == {"://"}
    assert all(re.fullmatch("//[a-z]{2}", text) for text in s["x"])
    assert s.text() == f"The url is http:{s['x'][0]} and{s['y']}"


def test_a_cached_prompt_is_healed_as_a_new_one(runtime: rx.Runtime) -> None:
    options = {"max_tokens": 5, "temperature": 0, "heal": True}
    runtime.flush_cache()
    cold, warm = (write.run("The tide comes in at ", options, backend=runtime) for _ in range(2))
    cold_meta, warm_meta = cold.get_meta_info("x"), warm.get_meta_info("x")
    assert isinstance(cold_meta, dict)
    assert isinstance(warm_meta, dict)
    assert cold_meta["cached_tokens"] == 0
    assert warm_meta["cached_tokens"] == warm_meta["prompt_tokens"] - 1
    assert cold_meta["output_token_logprobs"] == warm_meta["output_token_logprobs"]


def test_what_was_generated_and_special_tokens_and_what_is_behind_a_fork_are_never_drawn_anew(
    runtime: rx.Runtime,
) -> None:
    @function
    def program(s: ProgramState) -> None:
        s += raw("<|im_start|>") + gen("special", max_tokens=2)
        s += gen("generated", max_tokens=2)
        s += user("Why?") + assistant(gen("turn", max_tokens=2))
        s += "So th"
        for branch in s.fork(2):
            branch += gen("forked", max_tokens=2)
            branches.append(branch)

    branches: list[ProgramState] = []
    s = program.run(backend=runtime, heal=True, ignore_eos=True)
    for state, name in ((s, "special"), (s, "generated"), (s, "turn"), *((branch, "forked") for branch in branches)):
        meta = state.get_meta_info(name)
        assert isinstance(meta, dict)
        assert meta["completion_tokens"] == 2, name


def test_a_select_needs_no_healing(runtime: rx.Runtime) -> None:
    """Prompt and option are tokenised as one text anyway."""

    @function
    def program(s: ProgramState) -> None:
        s += "The url is http:" + select("x", ["//", "::"])

    assert program.run(backend=runtime, heal=True)["x"] == "//"


def test_text_that_a_join_appends_is_what_its_branches_said(runtime: rx.Runtime) -> None:
    @function
    def program(s: ProgramState) -> None:
        forks = s.fork(2)
        for branch in forks:
            branch += "The url is http:" + gen("x", max_tokens=3, heal=True)
        forks.join("concate_and_append")
        s += "!" + gen("next", max_tokens=1, logprob_start_len=0, return_text_in_logprobs=True)
        s["parts"] = [branch["x"] for branch in forks]

    s = program.run(backend=runtime, seed=3)
    said = "".join(f"The url is http:{part}" for part in s["parts"])
    assert "".join(told(s, "next", "input_token_logprobs")) == said + "!"


def test_a_plain_call_heals_too(runtime: rx.Runtime) -> None:
    assert runtime.generate("The url is http:", {"max_tokens": 4, "temperature": 0, "heal": True}).text.startswith("//")
    lone = runtime.generate("http", {"max_tokens": 1, "temperature": 0, "heal": True})
    assert lone.usage.completion_tokens == 1, "of a prompt of one token nothing would be left"


def test_a_token_that_would_end_the_generation_is_not_drawn_anew(runtime: rx.Runtime) -> None:
    colon = runtime.score("http:").tokens.ids.tolist()[-1]
    told = runtime.generate("http:", {"max_tokens": 2, "heal": True, "stop_token_ids": [colon], "seed": 1})
    assert told.usage.prompt_tokens == 2


@pytest.mark.parametrize(
    ("backend", "run", "of_gen", "healed"),
    [
        (True, None, None, True),
        (True, False, None, False),
        (True, False, True, True),
        (False, True, None, True),
        (False, None, None, False),
        (True, None, False, False),
    ],
)
def test_a_gen_says_before_its_run_and_that_before_the_backend(
    backend: bool, run: bool | None, of_gen: bool | None, healed: bool
) -> None:
    @function
    def program(s: ProgramState) -> None:
        s += "So" + gen("x", heal=of_gen)

    model = Scripted(capabilities=HEALING_RUNTIME if backend else EVERYTHING)
    program.run(backend=model, **({} if run is None else {"heal": run}))
    (node,) = model.nodes
    assert node.sampling is not None
    assert node.sampling.heal is healed


def test_a_runtime_and_an_endpoint_can_be_made_to_heal(tiny_llama: Path) -> None:
    with rx.Runtime(tiny_llama, kernels="reference", dtype="float32", kv_memory=2**22, heal=True) as runtime:
        assert runtime.capabilities.heals
    with rx.RuntimeEndpoint("http://127.0.0.1:9", heal=True) as endpoint:
        assert endpoint.capabilities.heals
