"""Programs run on a backend that follows a script or on the default model; a test says which is the default."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from radixrt.client.runtime import Runtime
from radixrt.lang import dispatch, set_default_backend
from radixrt.text.model_files import ModelFiles
from radixrt.text.tokenizer import Tokenizer, load_tokenizer
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


@pytest.fixture
def runtime(smollm2_runtime: Runtime) -> Runtime:
    """The default model, nothing cached."""
    smollm2_runtime.flush_cache()
    return smollm2_runtime


@pytest.fixture(scope="session")
def tokenizer(smollm2_files: ModelFiles) -> Tokenizer:
    """The default model's."""
    return load_tokenizer(smollm2_files)
