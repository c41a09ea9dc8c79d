"""Tokenizers that the grammar tests share."""

from __future__ import annotations

from pathlib import Path

import pytest

from radixrt.grammar.byte_tokenizer import byte_tokenizer
from radixrt.grammar.llguidance_backend import LlguidanceBackend
from radixrt.text.model_files import ModelFiles
from radixrt.text.tokenizer import Tokenizer, load_tokenizer


@pytest.fixture(scope="session")
def letters() -> Tokenizer:
    return byte_tokenizer()


@pytest.fixture(scope="session")
def words(tiny_llama: Path) -> Tokenizer:
    """A small vocabulary with tokens of several letters."""
    return load_tokenizer(ModelFiles("tiny", folder=tiny_llama))


@pytest.fixture(scope="session")
def backend(letters: Tokenizer) -> LlguidanceBackend:
    return LlguidanceBackend(letters)
