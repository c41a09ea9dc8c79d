"""Frontends for the chat template families, beside transformers' tokenizers of the same files."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from radixrt.text.frontend import Frontend
from radixrt.text.model_files import ModelFiles
from radixrt.text.tokenizer import load_tokenizer
from radixrt.text.turns import derive_turns
from tests.text.chat_families import FAMILIES, write_tokenizer

MakeFrontend = Callable[..., tuple[Frontend, Any]]


@pytest.fixture(scope="session")
def make_frontend(tmp_path_factory: pytest.TempPathFactory) -> MakeFrontend:
    """`make_frontend(family, adds_bos=False, has_bos=True)`: the frontend, and the oracle."""

    @cache
    def make(family: str | None, adds_bos: bool = False, has_bos: bool = True) -> tuple[Frontend, Any]:
        from transformers import AutoTokenizer

        template = None if family is None else FAMILIES[family]
        folder = write_tokenizer(tmp_path_factory.mktemp("tokenizer"), template, adds_bos=adds_bos, has_bos=has_bos)
        tokenizer = load_tokenizer(ModelFiles(folder.name, folder=folder))
        return Frontend(tokenizer, derive_turns(tokenizer)), AutoTokenizer.from_pretrained(folder)

    return make
