"""`/generate`."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import httpx
import pytest

from radixrt.server.calls import MAX_GENERATIONS
from tests.server.conftest import RunningServer
from tests.server.replies import chunks

PATH = "/generate"
GREEDY = {"temperature": 0, "max_new_tokens": 8, "ignore_eos": True}
TURN = [
    {"role": "user", "edge": "begin"},
    {"text": "How many days"},
    {"text": " are in a week?"},
    {"role": "user", "edge": "end"},
    {"role": "assistant", "edge": "begin"},
]


def generate(http: httpx.Client, sampling: dict[str, Any] | None = None, **body: Any) -> Any:
    reply = http.post(PATH, json={"sampling_params": {**GREEDY, **(sampling or {})}, **body})
    assert reply.status_code == 200, reply.text
    return reply.json()


def test_a_reply_has_text_ids_meta_information_and_the_tokenizers_fingerprint(
    server: RunningServer, http: httpx.Client
) -> None:
    http.post("/flush_cache")
    reply = generate(http, text="Once upon a time")
    tokenizer = server.service.supervisor.frontend.tokenizer
    assert reply["text"] == tokenizer.decode(reply["output_ids"])
    assert len(reply["output_ids"]) == 8
    assert reply["tokenizer"] == tokenizer.fingerprint
    meta = reply["meta_info"]
    assert meta["finish_reason"] == {"type": "length", "length": 8}
    assert (meta["completion_tokens"], meta["cached_tokens"]) == (8, 0)
    assert 0 < meta["time_to_first_token"] <= meta["e2e_latency"]
    assert meta["context_ids"] == reply["output_ids"]


def test_segments_are_joined_as_the_template_and_the_tokenizer_would(http: httpx.Client) -> None:
    rendered = "<|im_start|>user\nHow many days are in a week?<|im_end|>\n<|im_start|>assistant\n"
    by_text = generate(http, text=rendered)
    by_segments = generate(http, segments=TURN)
    raw = generate(http, segments=[{"raw": rendered[:20]}, {"raw": rendered[20:]}])
    for other in (by_segments, raw):
        assert other["output_ids"] == by_text["output_ids"]
        assert other["meta_info"]["prompt_tokens"] == by_text["meta_info"]["prompt_tokens"]


def test_a_context_is_continued_by_the_ids_that_the_reply_gives(http: httpx.Client) -> None:
    text = generate(http, segments=TURN)["text"]
    first = generate(http, {"stop": [text[4:6]]}, segments=TURN)
    assert first["meta_info"]["finish_reason"] == {"type": "stop", "matched": text[4:6]}
    assert first["text"] == text[:4]
    more = generate(http, segments=[*TURN, {"ids": first["meta_info"]["context_ids"]}, {"text": "!"}])
    meta = more["meta_info"]
    assert meta["prompt_tokens"] == first["meta_info"]["prompt_tokens"] + len(first["meta_info"]["context_ids"]) + 1


def test_a_programs_past_is_tokenised_node_by_node(server: RunningServer, http: httpx.Client) -> None:
    encode = server.service.supervisor.frontend.tokenizer.encode
    past = [
        *({"text": "The ti"}, {"fork": True}),
        *({"text": "de comes "}, {"choices": ["in", "into"], "chosen": 1}),
        *({"text": " the"}, {"generated": [300, 301]}, {"text": "end"}),
    ]
    pieces = [encode("The ti"), encode("de comes into"), encode(" the"), [300, 301], encode("end")]
    told = generate(http, segments=past)
    assert told["output_ids"] == generate(http, input_ids=[int(id) for piece in pieces for id in piece])["output_ids"]
    assert told["output_ids"] != generate(http, text="The tide comes into the")["output_ids"]


def test_ids_of_another_tokenizer_are_refused(server: RunningServer, http: httpx.Client) -> None:
    body = {"segments": [{"generated": [300]}], "sampling_params": GREEDY}
    fingerprint = server.service.supervisor.frontend.tokenizer.fingerprint
    assert http.post(PATH, json={**body, "tokenizer": fingerprint}).status_code == 200
    for path in (PATH, "/score"):
        reply = http.post(path, json={**body, "tokenizer": "0" * 64})
        assert reply.status_code == 409
        assert reply.json()["error"]["param"] == "tokenizer"
        assert reply.json()["error"]["code"] == "tokenizer_changed"


def test_a_list_of_prompts_gets_a_list_of_replies(server: RunningServer, http: httpx.Client) -> None:
    prompts = ["Once upon", "The tide"]
    alone = [generate(http, text=prompt)["text"] for prompt in prompts]
    encode = server.service.supervisor.frontend.tokenizer.encode
    assert [reply["text"] for reply in generate(http, text=prompts)] == alone
    assert [reply["text"] for reply in generate(http, input_ids=[encode(p).tolist() for p in prompts])] == alone
    assert [reply["text"] for reply in generate(http, segments=[[{"text": p}] for p in prompts])] == alone
    assert [reply["text"] for reply in generate(http, text=[prompts[0]])] == alone[:1]
    assert len(generate(http, {"n": 3}, text="One")) == 3


def test_a_stream_repeats_what_came_before_unless_told_not_to(http: httpx.Client) -> None:
    whole = generate(http, text="Once upon")
    body = {"text": "Once upon", "sampling_params": GREEDY}
    told = chunks(http, PATH, body)
    assert all(later["text"].startswith(earlier["text"]) for earlier, later in pairwise(told))
    assert (told[-1]["text"], told[-1]["output_ids"]) == (whole["text"], whole["output_ids"])
    assert [chunk["meta_info"]["finish_reason"] is None for chunk in told] == [True] * (len(told) - 1) + [False]
    news = chunks(http, PATH, {**body, "incremental": True})
    assert "".join(chunk["text"] for chunk in news) == whole["text"]
    assert [token for chunk in news for token in chunk["output_ids"]] == whole["output_ids"]
    assert news[-1]["meta_info"]["context_ids"] == whole["output_ids"]


def test_log_probabilities_are_given_by_token(http: httpx.Client) -> None:
    reply = generate(http, text="Once upon", return_logprob=True, top_logprobs_num=2)
    shown, top = reply["meta_info"]["output_token_logprobs"], reply["meta_info"]["output_top_logprobs"]
    assert [token for _, token in shown] == reply["output_ids"]
    assert [best[0] for best in top] == shown


def test_log_probabilities_come_with_texts_if_those_are_asked_for(http: httpx.Client) -> None:
    body = {"text": "Once <|im_start|>é", "return_logprob": True, "top_logprobs_num": 2, "logprob_start_len": 0}
    texts = {"return_text_in_logprobs": True}
    plain, told = generate(http, **body)["meta_info"], generate(http, **body, **texts)["meta_info"]
    for name in ("input_token_logprobs", "output_token_logprobs"):
        assert [entry[:2] for entry in told[name]] == plain[name]
    assert [[e[:2] for e in top] for top in told["output_top_logprobs"]] == plain["output_top_logprobs"]
    assert "".join(text for _, _, text in told["input_token_logprobs"]) == "Once <|im_start|>\ufffd\ufffd"
    streamed = chunks(http, PATH, {**body, **texts, "sampling_params": GREEDY, "incremental": True})
    assert [e for chunk in streamed for e in chunk["meta_info"].get("output_token_logprobs", ())] == told[
        "output_token_logprobs"
    ]
    assert streamed[-1]["meta_info"]["input_token_logprobs"] == told["input_token_logprobs"]


def test_sampling_parameters_have_openais_names_too(http: httpx.Client) -> None:
    reply = generate(http, {"max_new_tokens": None, "max_tokens": 3}, text="One")
    assert len(reply["output_ids"]) == 3
    seeded = [generate(http, {"temperature": 1, name: 5}, text="One")["text"] for name in ("seed", "sampling_seed")]
    assert seeded[0] == seeded[1]


def prompt_logprobs(http: httpx.Client, ids: list[int], start: int) -> Any:
    reply = generate(http, {"max_new_tokens": 1}, input_ids=ids, return_logprob=True, logprob_start_len=start)
    return reply["meta_info"]


def test_log_probabilities_of_the_prompt_are_those_of_a_run_without_a_cache(http: httpx.Client) -> None:
    """C12: from any start, cold, wholly cached, and behind a prefix that another prompt left in the cache."""
    ids = list(range(100, 140))
    other = ids[:20] + list(range(300, 320))
    http.post("/flush_cache")
    cold = prompt_logprobs(http, ids, 0)
    assert cold["input_token_logprobs"][0] == [None, ids[0]]
    assert [token for _, token in cold["input_token_logprobs"]] == ids
    assert all(value < 0 for value, _ in cold["input_token_logprobs"][1:])
    for start in (0, 1, 20, 39, 40):
        warm = prompt_logprobs(http, ids, start)
        assert warm["input_token_logprobs"] == cold["input_token_logprobs"][start:]
        assert warm["cached_tokens"] == max(start - 1, 0), "the logits that score a token are those of the one before"
    assert prompt_logprobs(http, other, 0)["input_token_logprobs"][:20] == cold["input_token_logprobs"][:20]
    behind = prompt_logprobs(http, other, 25)["input_token_logprobs"]
    http.post("/flush_cache")
    assert prompt_logprobs(http, other, 25)["input_token_logprobs"] == behind


def test_by_default_no_log_probabilities_of_the_prompt_are_told(http: httpx.Client) -> None:
    ids = list(range(100, 140))
    assert "input_token_logprobs" not in generate(http, input_ids=ids, return_logprob=True)["meta_info"]
    assert "input_token_logprobs" not in prompt_logprobs(http, ids, -1)


@pytest.mark.parametrize("start", [41, -2])
def test_a_start_that_the_prompt_does_not_have_is_refused(http: httpx.Client, start: int) -> None:
    body = {"input_ids": list(range(100, 140)), "return_logprob": True, "logprob_start_len": start}
    reply = http.post(PATH, json=body)
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == "logprob_start_len"


def test_a_start_without_log_probabilities_is_refused(http: httpx.Client) -> None:
    reply = http.post(PATH, json={"text": "So", "logprob_start_len": 0})
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == "logprob_start_len"


def test_each_prompt_of_a_list_has_its_own_log_probabilities(http: httpx.Client) -> None:
    prompts = [[200, 201, 202], [300, 301, 302, 303]]
    replies = generate(http, {"n": 2}, input_ids=prompts, return_logprob=True, logprob_start_len=1)
    told = [[token for _, token in reply["meta_info"]["input_token_logprobs"]] for reply in replies]
    assert told == [[201, 202], [201, 202], [301, 302, 303], [301, 302, 303]]


def test_a_streams_last_chunk_has_the_log_probabilities_of_the_prompt(http: httpx.Client) -> None:
    ids = list(range(100, 110))
    expected = prompt_logprobs(http, ids, 2)["input_token_logprobs"]
    body = {"input_ids": ids, "sampling_params": GREEDY, "return_logprob": True, "logprob_start_len": 2}
    *earlier, last = chunks(http, PATH, {**body, "stream": True})
    assert earlier
    assert all("input_token_logprobs" not in chunk["meta_info"] for chunk in earlier)
    assert last["meta_info"]["input_token_logprobs"] == expected


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"input_ids": [[100, 101]] * (MAX_GENERATIONS + 1)}, "input_ids"),
        ({"input_ids": [[100, 101], [100] * 100_000]}, "input_ids"),
        ({"input_ids": []}, "input_ids"),
        ({"text": []}, "text"),
    ],
    ids=["too many", "too long", "empty", "no prompts"],
)
def test_prompts_that_cannot_be_scored_are_refused(
    server: RunningServer, http: httpx.Client, body: dict[str, Any], field: str
) -> None:
    reply = http.post(PATH, json={**body, "return_logprob": True, "logprob_start_len": 0})
    assert reply.status_code == 400
    assert reply.json()["error"]["param"].partition("[")[0] == field
    assert len(generate(http, text="Once")["output_ids"]) == 8


def test_a_healed_prompt_can_be_continued_with_the_tokens_that_it_came_to(http: httpx.Client) -> None:
    text = "Once upon the ti"
    first = generate(http, {"heal": True, "max_new_tokens": 4}, segments=[{"text": text}])
    meta = first["meta_info"]
    plain = generate(http, {"max_new_tokens": 4}, segments=[{"text": text}])["meta_info"]
    assert meta["prompt_tokens"] == plain["prompt_tokens"] - 1
    assert meta["completion_tokens"] == 5
    assert meta["healed"] > 0
    assert "healed" not in plain
    past = [{"text": text}, {"generated": meta["context_ids"], "healed": meta["healed"]}]
    behind = generate(http, {"max_new_tokens": 1}, segments=[*past, {"text": "!"}])["meta_info"]
    # All of it is in the cache, but for the last token generated, which nothing has computed.
    assert behind["cached_tokens"] == meta["prompt_tokens"] + meta["completion_tokens"] - 1
    assert behind["prompt_tokens"] > behind["cached_tokens"]


@pytest.mark.parametrize(
    ("segments", "field"),
    [
        ([{"generated": [100], "healed": 2}], "segments"),
        ([{"ids": [100]}, {"generated": [100], "healed": 2}], "segments"),
        ([{"text": "So"}, {"generated": [100], "healed": -1}], "segments[1].healed"),
        ([{"text": "So"}, {"ids": [100], "healed": 2}], "segments[1].healed"),
    ],
)
def test_what_cannot_have_been_healed_is_refused(http: httpx.Client, segments: list[Any], field: str) -> None:
    reply = http.post(PATH, json={"segments": segments})
    assert reply.status_code == 400, reply.text
    assert reply.json()["error"]["param"] == field


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": "Once upon the ti", "logprobs": 0}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "So"}], "logprobs": True}),
    ],
)
def test_openais_routes_heal_where_no_log_probabilities_are_asked_for(
    http: httpx.Client, path: str, body: dict[str, Any]
) -> None:
    reply = http.post(path, json={**body, "heal": True})
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == "heal"
    body.pop("logprobs")
    usage = [http.post(path, json={**body, "max_tokens": 2, "heal": heal}).json()["usage"] for heal in (False, True)]
    assert usage[0]["prompt_tokens"] - usage[1]["prompt_tokens"] == (path == "/v1/completions")
