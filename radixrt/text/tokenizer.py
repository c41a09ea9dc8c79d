"""The tokenizer of a model: text to token ids, tokens to bytes. Built on the `tokenizers` library."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import tokenizers

from radixrt.protocol.ids import IdArray, as_ids
from radixrt.text.model_files import ModelFiles
from radixrt.text.token_bytes import LETTER_OF_BYTE, byte_level_bytes, sentencepiece_bytes
from radixrt.text.utf8 import encode_utf8


@dataclass(frozen=True)
class TokenizerParts:
    """What a model's files say of its tokenizer."""

    tokenizer: tokenizers.Tokenizer
    bos: str | None = None
    eos: str | None = None
    adds_bos: bool = False
    end_ids: frozenset[int] = field(default_factory=frozenset)
    chat_template: str | None = None


class Tokenizer:
    """Tokenises without state: where a text stands in a context is for the caller to say."""

    def __init__(self, parts: TokenizerParts) -> None:
        added = parts.tokenizer.get_added_tokens_decoder()
        self.vocabulary_size: int = max(parts.tokenizer.get_vocab_size(), *(i + 1 for i in added), 0)
        """Ids that may be asked for: 0 to this, less one. A model's embedding may be padded with rows past them."""
        self.chat_template = parts.chat_template
        """The Jinja source of the model's chat template, if it has one."""
        self.special_ids: Mapping[str, int] = {t.content: i for i, t in added.items() if t.special}
        """Special tokens by their text. Tokens that were merely added (Qwen 3's `<think>`) are ordinary text."""
        self.bos_text = parts.bos or ""
        self.eos_text = parts.eos or ""
        self.bos_id: int | None = self.special_ids.get(self.bos_text)
        self.adds_bos = parts.adds_bos and self.bos_id is not None
        self.end_ids = parts.end_ids | (
            {self.special_ids[self.eos_text]} if self.eos_text in self.special_ids else set()
        )
        """Tokens that end a turn or a text by the model's files (the chat template may know of others)."""
        self._rendered = parts.tokenizer
        self._added = {i: token.content.encode() for i, token in added.items() if not token.special}
        self._special_texts = {token: text for text, token in self.special_ids.items()}
        self._sentencepiece = "ByteLevel" not in f"{parts.tokenizer.decoder} {parts.tokenizer.pre_tokenizer}"
        # Two tokenizers of one vocabulary: in plain text, what looks like a special token is text.
        self._first = _copy(parts.tokenizer)
        self._first.encode_special_tokens = True
        self._inner = _without_space_before(self._first) if self._sentencepiece else self._first

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of every token's bytes, in order of id, and of the special tokens: equal where ids mean the same."""
        digest = hashlib.sha256()
        for token in range(self.vocabulary_size):
            data = self.token_bytes(token)
            digest.update(len(data).to_bytes(4, "little") + data)
        digest.update(json.dumps(sorted(self.special_ids.items())).encode())
        return digest.hexdigest()

    def encode(self, text: str, *, starts_context: bool = False) -> IdArray:
        """Plain text as ids: what looks like a special token stays text, no BOS is added.

        SentencePiece vocabularies put a space before a text's first word: only where `starts_context`. Raises
        `InvalidRequest` for an unpaired surrogate.
        """
        encode_utf8(text, "text")
        tokenizer = self._first if starts_context else self._inner
        return as_ids(tokenizer.encode(text, add_special_tokens=False).ids)

    def encode_rendered(self, text: str) -> IdArray:
        """A rendered prompt as ids: special tokens are recognised, and the BOS added that is wanted and not there."""
        encode_utf8(text, "text")
        ids = self._rendered.encode(text, add_special_tokens=False).ids
        if self.adds_bos and self.bos_id is not None and ids[:1] != [self.bos_id]:
            ids = [self.bos_id, *ids]
        return as_ids(ids)

    def encode_bytes(self, data: bytes) -> IdArray:
        """What a stop string left of a token as ids: by text as far as it is UTF-8, the rest byte by byte.

        The ids stand for exactly `data`, less bytes that no token of the vocabulary has.
        """
        try:
            text, rest = data.decode(), b""
        except UnicodeDecodeError as error:
            text, rest = data[: error.start].decode(), data[error.start :]
        ids = self.encode(text).tolist()
        if b"".join(map(self.token_bytes, ids)) != text.encode():
            # A normalizer changed the text (Qwen's composes accents), but the context has to be what was shown.
            ids, rest = [], data
        return as_ids([*ids, *(self._byte_ids[byte] for byte in rest if byte in self._byte_ids)])

    def token_bytes(self, token: int) -> bytes:
        """The bytes that a token stands for in text.

        None for a special token, and for an id that pads the embedding: a model may choose one.
        """
        if token in self._special_texts:
            return b""
        added = self._added.get(token)
        if added is not None:
            return added
        piece = self._rendered.id_to_token(token)
        if piece is None:
            return b""
        return sentencepiece_bytes(piece) if self._sentencepiece else byte_level_bytes(piece)

    def token_text(self, token: int) -> str:
        """What a token is written as by itself: a special one by its name, bytes that are no UTF-8 as U+FFFD."""
        return self._special_texts.get(token) or self.token_bytes(token).decode(errors="replace")

    def decode(self, ids: Iterable[int], *, starts_context: bool = False) -> str:
        """The text of a sequence; special tokens are left out, what is no UTF-8 becomes U+FFFD.

        Where `starts_context`, the space that SentencePiece vocabularies put before the first word is taken away.
        """
        text = b"".join(self.token_bytes(int(token)) for token in ids).decode(errors="replace")
        return text.removeprefix(" ") if self._sentencepiece and starts_context else text

    @cached_property
    def _byte_ids(self) -> dict[int, int]:
        """The token of each single byte, where the vocabulary has one."""
        pieces = ((byte, f"<0x{byte:02X}>" if self._sentencepiece else LETTER_OF_BYTE[byte]) for byte in range(256))
        ids = ((byte, self._rendered.token_to_id(piece)) for byte, piece in pieces)
        return {byte: token for byte, token in ids if token is not None}


def load_tokenizer(files: ModelFiles) -> Tokenizer:
    """The tokenizer of a model's files. Raises `UnsupportedModel` for a kind that is not known."""
    # Each way of reading imports what it alone needs.
    if files.gguf is not None:
        from radixrt.text.gguf_tokenizer import read_gguf_tokenizer

        return Tokenizer(read_gguf_tokenizer(files.gguf))
    from radixrt.text.hf_tokenizer import read_hf_tokenizer

    assert files.folder is not None
    return Tokenizer(read_hf_tokenizer(files.folder))


def _copy(tokenizer: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_str(tokenizer.to_str())


def _without_space_before(tokenizer: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """The same tokenizer for text inside a context: it puts no space before the first word."""
    description = json.loads(tokenizer.to_str())
    description["normalizer"] = _without_prepend(description["normalizer"])
    description["pre_tokenizer"] = _without_prepend(description["pre_tokenizer"])
    inner = tokenizers.Tokenizer.from_str(json.dumps(description))
    inner.encode_special_tokens = True
    return inner


def _without_prepend(step: dict[str, Any] | None) -> dict[str, Any] | None:
    """A normalizer or pre-tokenizer, as the library describes it, without what puts a space before a text."""
    if step is None or step["type"] == "Prepend":
        return None
    if step["type"] == "Metaspace":
        return {**step, "prepend_scheme": "never"}
    if step["type"] == "Sequence":
        key = "normalizers" if "normalizers" in step else "pretokenizers"
        kept = [inner for inner in map(_without_prepend, step[key]) if inner is not None]
        return {**step, key: kept} if kept else None
    return step
