"""Programs run on a backend that follows a script; none is the default unless a test says so."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from radixrt.lang import set_default_backend
from tests.lang.scripted import Scripted


@pytest.fixture
def backend() -> Iterator[Scripted]:
    """A backend that replies to each generation with its node's number, for programs without `backend=`."""
    scripted = Scripted()
    set_default_backend(scripted)
    yield scripted
    set_default_backend(None)
