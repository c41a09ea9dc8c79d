"""What a generation asks for arrives at a server as it was meant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from radixrt.client.endpoint.requests import generate_body
from radixrt.protocol.constraint import Choice, Constraint, JsonObject, JsonSchema, Regex
from radixrt.protocol.sampling import SamplingParams
from radixrt.server.native import GenerateRequest, requested_sampling

OTHERS: Mapping[str, Any] = {
    "max_tokens": 7,
    "min_tokens": 2,
    "n": 3,
    "temperature": 0.25,
    "top_p": 0.5,
    "top_k": 40,
    "min_p": 0.125,
    "seed": -(2**60),
    "frequency_penalty": 0.5,
    "presence_penalty": -0.5,
    "repetition_penalty": 1.5,
    "logit_bias": {3: -1.5, 12: 2.0},
    "stop": ("\n", "é"),
    "stop_token_ids": (5, 6),
    "stop_regex": ("a+b",),
    "ignore_eos": True,
    "heal": True,
    "constraint": Regex("[0-9]+"),
    "logprobs": 4,
    "logprob_start_len": 5,
    "return_text_in_logprobs": True,
}
CONSTRAINTS = [JsonSchema('{"type":"object","b":1,"a":2}'), JsonSchema("false"), JsonObject(), Choice(("a", "b"))]


def arrived(params: SamplingParams) -> SamplingParams:
    """The parameters that a server makes of the request."""
    body = msgspec.json.encode(generate_body(params) | {"text": "x"})
    return requested_sampling(msgspec.json.decode(body, type=GenerateRequest)).params


def test_every_parameter_arrives() -> None:
    assert set(OTHERS) == set(SamplingParams.__struct_fields__), "a parameter is not tried here"
    default = SamplingParams()
    for name, value in OTHERS.items():
        assert getattr(default, name) != value
    assert arrived(SamplingParams(**OTHERS)) == SamplingParams(**OTHERS)
    assert arrived(default) == default
    assert arrived(SamplingParams(logprob_start_len=0)).logprob_start_len == 0


@pytest.mark.parametrize("constraint", CONSTRAINTS, ids=str)
def test_every_constraint_arrives(constraint: Constraint) -> None:
    assert arrived(SamplingParams(constraint=constraint)).constraint == constraint
