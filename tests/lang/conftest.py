"""Programs run on a backend that follows a script; none is the default unless a test says so."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from radixrt.lang import dispatch, set_default_backend
from tests.lang.scripted import Scripted


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Statements are sent when a value is read or the program ends, however long a busy machine takes between them."""
    monkeypatch.setattr(dispatch, "IDLE_SECONDS", 5.0)


@pytest.fixture
def backend() -> Iterator[Scripted]:
    """A backend that replies to each generation with its node's number, for programs without `backend=`."""
    scripted = Scripted()
    set_default_backend(scripted)
    yield scripted
    set_default_backend(None)
