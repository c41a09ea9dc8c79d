"""A tokenizer from a Hugging Face folder: tokenizer.json, and what the configuration files beside it say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import tokenizers

from radixrt.errors import UnsupportedModel
from radixrt.text.tokenizer import TokenizerParts


def read_hf_tokenizer(folder: Path) -> TokenizerParts:
    """Raises `UnsupportedModel` without a tokenizer.json that can be read."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise UnsupportedModel(f"{folder} has no tokenizer.json; slow tokenizers are not supported: save a fast one")
    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # The library raises nothing narrower.
        raise UnsupportedModel(f"{path} cannot be read: {error}") from error
    config = _read_json(folder / "tokenizer_config.json")
    bos = _token_text(config.get("bos_token"))
    return TokenizerParts(
        tokenizer=tokenizer,
        bos=bos,
        eos=_token_text(config.get("eos_token")),
        adds_bos=bos is not None and tokenizer.encode("x").tokens[:1] == [bos],
        end_ids=_end_ids(folder),
        chat_template=_chat_template(folder, config),
    )


def _end_ids(folder: Path) -> frozenset[int]:
    """Every end-of-sequence id of configuration and generation configuration."""
    ids: set[int] = set()
    for name in ("config.json", "generation_config.json"):
        value = _read_json(folder / name).get("eos_token_id")
        ids |= set(value) if isinstance(value, list) else {value} if isinstance(value, int) else set()
    return frozenset(ids)


def _chat_template(folder: Path, config: dict[str, Any]) -> str | None:
    path = folder / "chat_template.jinja"
    if path.is_file():
        return path.read_text(encoding="utf-8")
    template = config.get("chat_template")
    if isinstance(template, list):  # Several by name; one is meant for ordinary use.
        template = next((entry["template"] for entry in template if entry["name"] == "default"), None)
    return template if isinstance(template, str) else None


def _token_text(token: str | dict[str, Any] | None) -> str | None:
    return token["content"] if isinstance(token, dict) else token


def _read_json(path: Path) -> dict[str, Any]:
    """The object in a file; none in a file that is not there."""
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UnsupportedModel(f"{path} is not JSON: {error}") from error
    return value if isinstance(value, dict) else {}
