"""`/turns`."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from radixrt.server.turns import MAX_TURNS
from tests.server.conftest import RunningServer

PATH = "/turns"


def turns(http: httpx.Client, *conversations: dict[str, Any]) -> Any:
    reply = http.post(PATH, json={"conversations": conversations})
    assert reply.status_code == 200, reply.text
    return reply.json()


def test_what_the_template_writes_around_each_turn_is_told(server: RunningServer, http: httpx.Client) -> None:
    reply = turns(http, {"roles": ["system", "user", "assistant"]}, {"roles": ["user", "assistant"], "start": 1})
    around = [{"begin": f"<|im_start|>{role}\n", "end": "<|im_end|>\n"} for role in ("system", "user", "assistant")]
    assert reply["conversations"] == [{"turns": around}, {"turns": around[2:]}]
    assert reply["tokenizer"] == server.service.supervisor.frontend.tokenizer.fingerprint


def test_a_conversation_that_is_refused_leaves_the_others(http: httpx.Client) -> None:
    bad, good = turns(http, {"roles": ["user", "no such role!"]}, {"roles": ["user"]})["conversations"]
    assert len(bad["turns"]) == len(good["turns"]) == 1
    assert bad["error"]["code"] == "invalid_value"
    assert "no such role!" in bad["error"]["message"]
    assert "error" not in good


@pytest.mark.parametrize(
    "conversations", [None, 7, [{}], [{"roles": "user"}], [{"roles": ["user"] * (MAX_TURNS + 1)}]], ids=range(5)
)
def test_what_are_no_conversations_is_refused(http: httpx.Client, conversations: object) -> None:
    reply = http.post(PATH, json={"conversations": conversations})
    assert reply.status_code == 400
    assert reply.json()["error"]["param"].startswith("conversations")
