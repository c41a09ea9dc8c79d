"""The code of docs/backends.md runs, its server replaced by one that replies as a test can know."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from radixrt.lang import set_default_backend
from tests.import_rules import ROOT
from tests.support.chat_server import Answer, ChatServer, Sent, openai_events


def respond(sent: Sent) -> Answer:
    question = sent.body["messages"][-1]["content"]
    return Answer(openai_events(["Name: Ada\n", "Book: Sea"] if "poet" in question else ["Paris"]))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatServer]:
    monkeypatch.setenv("OPENAI_API_KEY", "a key")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "a key")
    with ChatServer(respond) as server:
        yield server
    set_default_backend(None)


def test_the_code_of_the_page_runs(server: ChatServer, capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "backends.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    code = "".join(blocks).replace("http://localhost:8000", server.url)
    exec(compile(code, "docs/backends.md", "exec"), {"__name__": "page"})
    assert capsys.readouterr().out.splitlines() == ["Paris", "Ada Sea"]
    assert len(server.sent) == 2
