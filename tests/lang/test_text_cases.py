"""Where text ends and how it is cut, from the language down to the real model, whose text is forced by a regex."""

from __future__ import annotations

import re
from itertools import permutations
from typing import Any

import pytest

import radixrt as rx
from radixrt.lang import ProgramState, function, gen
from radixrt.text.tokenizer import Tokenizer


@function
def forced(s: ProgramState, prompt: str, text: str, **options: Any) -> None:
    s += prompt + gen("x", max_tokens=100, regex=re.escape(text), logprobs=0, **options)
    s += "!" + gen("next", max_tokens=1, logprob_start_len=0)


def meta(s: ProgramState, name: str = "x") -> dict[str, Any]:
    info = s.get_meta_info(name)
    assert isinstance(info, dict)
    return info


def context(s: ProgramState, tokenizer: Tokenizer) -> str:
    """The text of the tokens that the second gen continued."""
    return tokenizer.decode([token for _, token, _ in meta(s, "next")["input_token_logprobs"]])


@function
def say(s: ProgramState, prompt: str, **options: Any) -> None:
    s += prompt + gen("x", **options)


@pytest.mark.parametrize("stops", [{"stop": "two-three-f"}, {"stop_regex": "t[a-z-]+hree-f"}])
def test_no_piece_of_a_stream_has_a_part_of_the_stop(runtime: rx.Runtime, stops: dict[str, Any]) -> None:
    """D10"""
    options = {"regex": "one-two-three-four", "max_tokens": 40, **stops}
    streamed = say.run("Count: ", stream=True, backend=runtime, **options)
    pieces = list(streamed.text_iter("x"))
    assert "".join(pieces) == "one-" == streamed["x"] == say.run("Count: ", backend=runtime, **options)["x"]
    assert all(piece in "one-" for piece in pieces)
    assert meta(streamed)["finish_reason"] == "stop"
    matched = "two-three-f"
    assert meta(streamed)["matched_stop"] == matched


@pytest.mark.parametrize("stop", list(permutations([".", ";", "fig"])))
def test_the_earliest_stop_cuts_whatever_the_order_of_the_list(runtime: rx.Runtime, stop: tuple[str, ...]) -> None:
    """D12"""
    for given in ({"stop": stop}, {"stop_regex": [re.escape(one) for one in stop]}):
        s = forced.run("Buy: ", "plum;fig.end", backend=runtime, **given)
        assert s["x"] == "plum"
        assert meta(s)["matched_stop"] == ";"


@pytest.mark.parametrize("stop", [["v2 final", "2"], ["2", "v2 final"]])
def test_a_longer_stop_that_does_not_come_leaves_the_shorter_one(runtime: rx.Runtime, stop: list[str]) -> None:
    """D12"""
    s = forced.run("Release: ", "v2 beta", stop=stop, backend=runtime)
    assert (s["x"], meta(s)["matched_stop"]) == ("v", "2")


SIXTY = "the tide comes in twice a day and the harbour fills with boats"


@pytest.mark.parametrize(
    ("prompt", "text", "stop", "expected"),
    [
        ("Press the red", " button", "butt", " "),
        ("Press the red", " button", "n", " butto"),
        ("Once", f" upon {SIXTY}, it is told", SIXTY, " upon "),
        ("Press the but", "ton and butter", "butt", "ton and "),
        ("Press the but", "ton", "button", "ton"),
        ("k=(", "val);", ")", "val"),
        ("k=(", "val);", ");", "val"),
        ("Say: ", "žluť façade", "ť", "žlu"),
    ],
)
@pytest.mark.parametrize("kind", ["stop", "stop_regex"])
def test_a_stop_counts_anywhere_in_what_was_generated_and_nowhere_else(
    runtime: rx.Runtime, tokenizer: Tokenizer, prompt: str, text: str, stop: str, expected: str, kind: str
) -> None:
    """D13, D15: inside a token, over many, longer than any window; not where it begins in the prompt."""
    s = forced.run(prompt, text, backend=runtime, **{kind: stop if kind == "stop" else re.escape(stop)})
    assert s["x"] == expected
    assert meta(s)["matched_stop"] == (None if expected == text else stop)
    assert context(s, tokenizer) == prompt + expected + "!" == s.text().removesuffix(s["next"])
    # Tokens are counted that were generated, to the one that completed the stop.
    made = tokenizer.decode([token for _, token, _ in meta(s)["output_token_logprobs"]])
    assert text.startswith(made)
    assert made.startswith(expected if expected == text else expected + stop)
    assert meta(s)["completion_tokens"] == len(meta(s)["output_token_logprobs"])


@pytest.mark.parametrize("stops", [{"stop": "until dark"}, {"stop_regex": "until d[a-z]+k"}])
def test_nothing_of_a_stop_is_left_in_the_context(
    runtime: rx.Runtime, tokenizer: Tokenizer, stops: dict[str, Any]
) -> None:
    """D14: nor is anything that was computed for it taken for what the text goes on with."""
    runtime.flush_cache()
    s = forced.run("N:", "boats sail until dark falls", backend=runtime, **stops)
    assert s["x"] == "boats sail "
    assert context(s, tokenizer) == "N:boats sail !"
    fresh = runtime.score([token for _, token, _ in meta(s, "next")["input_token_logprobs"]])
    assert list(fresh.tokens.logprobs) == [value for value, _, _ in meta(s, "next")["input_token_logprobs"]]

    @function
    def again(s: ProgramState) -> None:
        s += "N:" + gen("x", regex="boats sail until dark falls", max_tokens=40, **stops)
        s += " END" + gen("next", max_tokens=1)

    kept = again.run(backend=runtime)
    assert meta(kept, "next")["cached_tokens"] <= len(tokenizer.encode("N:boats sail ", starts_context=True))


CLOCK = "([01][0-9]|2[0-3]):[0-5][0-9]"


def test_a_text_ends_when_its_regex_admits_nothing_more(runtime: rx.Runtime, tokenizer: Tokenizer) -> None:
    """D16"""
    digits = {int(tokenizer.encode(str(digit))[0]): 30.0 for digit in range(10)}
    for seed in range(8):
        s = say.run("The time is ", regex=CLOCK, max_tokens=64, logit_bias=digits, seed=seed, backend=runtime)
        assert re.fullmatch(CLOCK, s["x"])
        assert (meta(s)["finish_reason"], meta(s)["matched_stop"]) == ("stop", None)
        assert meta(s)["completion_tokens"] <= 5


@pytest.mark.parametrize("pattern", ["[a-c-]{3}x", "[-x]{2}y", r"[+\-*]{2}1", "[a-]b", "[]a]{2}", "[^a-y\n]z"])
def test_a_class_with_a_dash_or_a_bracket_means_what_re_reads(runtime: rx.Runtime, pattern: str) -> None:
    """D16"""
    for seed in range(4):
        s = say.run("Code: ", regex=pattern, max_tokens=32, temperature=1.5, seed=seed, backend=runtime)
        assert re.fullmatch(pattern, s["x"]), s["x"]
        assert meta(s)["finish_reason"] == "stop"


def test_with_a_stop_the_text_is_a_match_cut_there(runtime: rx.Runtime) -> None:
    """D16"""
    for stop, expected in ((":", 2), (["9", ":"], None)):
        s = say.run("The time is ", regex=CLOCK, max_tokens=64, stop=stop, seed=1, backend=runtime)
        assert re.fullmatch("[0-2]?[0-9]?", s["x"])
        assert expected is None or len(s["x"]) == expected
        assert meta(s)["finish_reason"] == "stop"
        assert meta(s)["matched_stop"] in stop


@pytest.mark.parametrize("spelled", ["<|im_end|>", "a <|im_start|>system b", "<|endoftext|>"])
def test_special_tokens_that_are_only_spelled_end_nothing(
    runtime: rx.Runtime, tokenizer: Tokenizer, spelled: str
) -> None:
    """D20: neither as a user's content nor as a text that is forced."""
    s = say.run("Repeat: ", json_schema={"const": spelled}, max_tokens=40, backend=runtime)
    assert s["x"] == f'"{spelled}"'
    assert (meta(s)["finish_reason"], meta(s)["matched_stop"]) == ("stop", None)

    @function
    def explain(s: ProgramState, word: str) -> None:
        s += rx.user("explain " + word) + rx.assistant(gen("x", max_tokens=1, logprob_start_len=0))

    ids, plain = (
        [token for _, token, _ in meta(explain.run(word, backend=runtime))["input_token_logprobs"]]
        for word in (spelled, "x")
    )
    special = set(tokenizer.special_ids.values())
    assert [i for i in ids if i in special] == [i for i in plain if i in special]
    assert spelled in tokenizer.decode(ids)


MANY = "žluť 🧑‍🍳🥝 façade 書道"


def test_characters_of_several_tokens_come_whole(runtime: rx.Runtime) -> None:
    """D21"""
    options: dict[str, Any] = {"regex": re.escape(MANY), "max_tokens": 80}
    s = say.run("Say: ", stream=True, backend=runtime, **options)
    pieces = list(s.text_iter("x"))
    assert "".join(pieces) == MANY
    assert all("\ufffd" not in piece for piece in pieces)
    assert len(pieces) > 4
    assert say.run("Say: ", n=2, backend=runtime, **options)["x"] == [MANY, MANY]


def test_a_cut_inside_a_character_shows_the_same_streamed_and_whole(runtime: rx.Runtime) -> None:
    """D21: what is left of it is one U+FFFD, at the end."""
    count = len(runtime.generate("Say: ", {"regex": re.escape(MANY), "max_tokens": 80, "temperature": 0}).ids)
    cut = 0
    for limit in range(1, count + 1):
        options: dict[str, Any] = {"regex": re.escape(MANY), "max_tokens": limit, "temperature": 0}
        streamed = say.run("Say: ", stream=True, backend=runtime, **options)
        whole = say.run("Say: ", n=2, backend=runtime, **options)["x"]
        text = "".join(streamed.text_iter("x"))
        assert [text, text] == whole
        assert text.count("\ufffd") <= 1
        assert MANY.startswith(text.removesuffix("\ufffd"))
        cut += text.endswith("\ufffd")
    assert cut, "no limit fell inside a character"
