"""What the guide and the pages for users of other libraries show is what happens."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import radixrt as rx
from radixrt.client.runtime import Runtime
from radixrt.lang import set_default_backend
from tests.import_rules import ROOT
from tests.support.pages import blocks, check_page

GUIDE = sorted((ROOT / "docs" / "guide").glob("*.md"))
PAGES = [*GUIDE, *sorted((ROOT / "docs").glob("coming-from-*.md"))]
NAMES = [path.stem for path in PAGES]


@pytest.fixture(scope="module")
def runtime() -> Iterator[Runtime]:
    with Runtime("smollm2-135m", context_length=2048) as runtime:
        yield runtime


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Where a page's code lives: types look for what they name in their module."""
    module = ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)
    return module


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_the_code_of_a_page_runs_and_prints_what_the_page_shows(
    page: Path,
    module: ModuleType,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """On one runtime for all pages, and each with an empty cache."""

    def shared(model: str) -> Runtime:
        assert model == "smollm2-135m"
        runtime: Runtime = request.getfixturevalue("runtime")
        runtime.flush_cache()
        return runtime

    monkeypatch.setattr(rx, "Runtime", shared)
    try:
        check_page(page, module, tmp_path)
    finally:
        set_default_backend(None)


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_a_page_shows_code_that_runs(page: Path) -> None:
    assert any(block.runs for block in blocks(page))


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8"))
    for link in links:
        assert link.startswith("https://") or (page.parent / link).exists(), link


def test_the_index_leads_to_every_page_in_their_order() -> None:
    index = (ROOT / "docs" / "guide" / "README.md").read_text(encoding="utf-8")
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
        check_page(path, module, tmp_path)
