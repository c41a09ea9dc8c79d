"""What README and docs show is what happens: code runs, commands are commands, links lead somewhere."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import radixrt as rx
from radixrt.client.runtime import Runtime
from radixrt.config import WorkerConfig
from radixrt.lang import set_default_backend
from tests.import_rules import ROOT
from tests.server.conftest import RunningServer
from tests.support.chat_server import Answer, ChatServer, Sent, openai_events
from tests.support.pages import blocks, check_command, check_page, commands

DOCS = ROOT / "docs"
GUIDE = sorted((DOCS / "guide").glob("*.md"))
TEACHING = [
    ROOT / "README.md",
    DOCS / "backends.md",
    DOCS / "gpu.md",
    *GUIDE,
    *sorted(DOCS.glob("coming-from-*.md")),
]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "tests" / "README.md", *sorted(DOCS.rglob("*.md"))]

MODEL = "smollm2-135m"
CONTEXT_LENGTH = 2048
ADDRESSES = {"http://127.0.0.1:30000": "server", "http://localhost:8000": "chat_api"}
"""By what a page writes: the fixture that stands there."""


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    """`radixrt serve`."""
    with RunningServer(WorkerConfig(model=MODEL, context_length=CONTEXT_LENGTH), name=None) as server:
        yield server


@pytest.fixture
def chat_api() -> Iterator[ChatServer]:
    """OpenAI's API, which knows a poet and a capital."""

    def respond(sent: Sent) -> Answer:
        question = sent.body["messages"][-1]["content"]
        return Answer(openai_events(["Name: Ada\n", "Book: Sea"] if "poet" in question else ["Paris"]))

    with ChatServer(respond) as server:
        yield server


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Where a page's code lives: types look for what they name in their module."""
    module = ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)
    return module


@pytest.mark.parametrize("page", TEACHING, ids=name_of)
def test_the_code_of_a_page_runs_and_prints_what_the_page_shows(
    page: Path,
    module: ModuleType,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """On one runtime for all pages, each time with an empty cache."""

    def shared(model: str, context_length: int = CONTEXT_LENGTH) -> Runtime:
        assert (model, context_length) == (MODEL, CONTEXT_LENGTH)
        runtime: Runtime = request.getfixturevalue("smollm2_runtime")
        runtime.flush_cache()
        return runtime

    code = "".join(block.text for block in blocks(page) if block.runs)
    addresses = {
        written: request.getfixturevalue(fixture).url for written, fixture in ADDRESSES.items() if written in code
    }
    monkeypatch.setattr(rx, "Runtime", shared)
    monkeypatch.setattr(Runtime, "__exit__", lambda *_: None)  # a page's `with` is not the last to use it
    monkeypatch.setenv("OPENAI_API_KEY", "a key")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "a key")
    try:
        check_page(page, module, tmp_path, addresses)
    finally:
        set_default_backend(None)


@pytest.mark.parametrize("page", TEACHING, ids=name_of)
def test_a_page_shows_code_that_runs(page: Path) -> None:
    assert any(block.runs for block in blocks(page))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_commands_of_a_page_are_commands(page: Path) -> None:
    for command in commands(page):
        check_command(command)


def test_there_are_commands() -> None:
    assert {command.split()[1] for page in PAGES for command in commands(page)} == {
        *("doctor", "chat", "run", "serve", "grammar", "simulate", "plan")
    }


def test_the_guide_names_every_option_of_a_gen() -> None:
    table = re.findall(r"^\| (`.*?) \|", (DOCS / "guide" / "2-gen-and-select.md").read_text(), re.MULTILINE)
    named = {name for row in table for name in re.findall(r"`(\w+)`", row)}
    assert named == inspect.signature(rx.gen).parameters.keys() - {"name", "choices_method"}


def test_the_page_of_the_server_has_its_routes(server: RunningServer) -> None:
    rows = re.findall(r"^\| (`(?:GET|POST) /.*?) \|", (DOCS / "server.md").read_text(), re.MULTILINE)
    told = {path.replace("NAME", "{name}") for row in rows for path in re.findall(r"(/[^`]*)`", row)}
    assert told == server.client.get("/openapi.json").json()["paths"].keys() | {"/docs"}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8"))
    for link in links:
        assert link.startswith("https://") or (page.parent / link).exists(), link


def test_the_index_leads_to_every_page_in_their_order() -> None:
    index = (DOCS / "guide" / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"\((\d-[\w-]+\.md)\)", index) == [path.name for path in GUIDE if path.name != "README.md"]


@pytest.mark.parametrize(
    ("page", "complaint"),
    [
        ("```python\nprint(1)\n```\n\n```text\n2\n```\n", "page.md:2 prints"),
        ("```python\nprint(1)\n```\n", "does not show"),
        ("```python\nprint(1)\n```\n\n```text sample\n1\n2\n```\n", "prints other lines"),
        ("```sh\nradixrt grammar check true 1\n```\n\n```text\nrejected: 1\n```\n", "accepted: 1"),
        ("```sh\nrm -rf .\n```\n", "no radixrt command"),
        ("```python\nx = 1\n```\n\n```python\nassert x == 2, 'not 2'\n```\n", "not 2"),
    ],
)
def test_a_page_that_shows_what_does_not_happen_fails(
    page: str, complaint: str, module: ModuleType, tmp_path: Path
) -> None:
    path = tmp_path / "page.md"
    path.write_text(page)
    with pytest.raises(AssertionError, match=re.escape(complaint)):
        check_page(path, module, tmp_path, {})


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        ("radixrt sing", "has no sing"),
        ("radixrt plan --colour red", "--colour"),
        ("radixrt plan --memory 1GB", "Missing parameter: model"),
        ("radixrt chat --max-tokens many", "valid integer"),
    ],
)
def test_what_is_no_command_is_told(command: str, complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check_command(command)
