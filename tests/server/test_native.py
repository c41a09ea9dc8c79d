"""`/generate`."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import httpx

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


def test_sampling_parameters_have_openais_names_too(http: httpx.Client) -> None:
    reply = generate(http, {"max_new_tokens": None, "max_tokens": 3}, text="One")
    assert len(reply["output_ids"]) == 3
    seeded = [generate(http, {"temperature": 1, name: 5}, text="One")["text"] for name in ("seed", "sampling_seed")]
    assert seeded[0] == seeded[1]
