"""`/turns`."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from radixrt.server.turns import MAX_TURNS
from tests.server.conftest import RunningServer

PATH = "/turns"


def turns(http: httpx.Client, **body: Any) -> Any:
    reply = http.post(PATH, json=body)
    assert reply.status_code == 200, reply.text
    return reply.json()


def test_what_the_template_writes_around_each_turn_is_told(server: RunningServer, http: httpx.Client) -> None:
    roles = ["system", "user", "assistant"]
    around = [{"begin": f"<|im_start|>{role}\n", "end": "<|im_end|>\n"} for role in roles]
    fingerprint = server.service.supervisor.frontend.tokenizer.fingerprint
    assert turns(http, roles=roles) == {"turns": around, "tokenizer": fingerprint}
    assert turns(http, roles=roles, start=2)["turns"] == around[2:]
    assert turns(http, roles=roles, start=3)["turns"] == []


def test_a_turn_that_is_refused_ends_what_is_told(http: httpx.Client) -> None:
    reply = turns(http, roles=["user", "no such role!", "user"])
    assert len(reply["turns"]) == 1
    assert reply["error"]["code"] == "invalid_value"
    assert "no such role!" in reply["error"]["message"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "roles"),
        ({"roles": "user"}, "roles"),
        ({"roles": ["user"] * (MAX_TURNS + 1)}, "roles"),
        ({"roles": ["user"], "start": 2}, "start"),
        ({"roles": ["user"], "start": -1}, "start"),
    ],
    ids=["none", "text", "too many", "start behind", "start before"],
)
def test_what_is_no_conversation_is_refused(http: httpx.Client, body: dict[str, Any], field: str) -> None:
    reply = http.post(PATH, json=body)
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == field
