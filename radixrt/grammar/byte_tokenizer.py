"""A tokenizer whose tokens are the bytes: to run a grammar without any model."""

from __future__ import annotations

import tokenizers

from radixrt.text.token_bytes import LETTER_OF_BYTE
from radixrt.text.tokenizer import Tokenizer, TokenizerParts


def byte_tokenizer() -> Tokenizer:
    """Token i is the byte i; token 256 ends the text."""
    letters = {LETTER_OF_BYTE[byte]: byte for byte in range(256)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=letters, merges=[]))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.add_special_tokens(["<end>"])
    return Tokenizer(TokenizerParts(tokenizer, eos="<end>"))
