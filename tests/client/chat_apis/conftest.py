"""A stand-in server for each test, and no pauses between tries."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from radixrt.client.chat_apis import line
from tests.support.chat_server import Answer, ChatServer, openai_events


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatServer]:
    """Replies "Hi!" in OpenAI's form until a test says otherwise."""
    monkeypatch.setattr(line, "_FIRST_PAUSE", 0.005)
    with ChatServer(lambda sent: Answer(openai_events(["Hi!"]))) as server:
        yield server
