"""Our tokenizer, as llguidance wants to see it."""

from __future__ import annotations

import llguidance

from radixrt.errors import UnsupportedModel
from radixrt.text.tokenizer import Tokenizer


class _Vocabulary:
    """What `LLTokenizer` asks of a tokenizer: the bytes of each token, and a function from text to ids."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, tokenizer: Tokenizer) -> None:
        if not tokenizer.special_ids:
            raise UnsupportedModel("the model's vocabulary has no special token; a constrained text could never end")
        self.special_token_ids = sorted(tokenizer.special_ids.values())
        # The library wants one end token. The matcher takes it out of every mask again: ends are for the worker.
        self.eos_token_id = self.special_token_ids[0]
        self.tokens = [tokenizer.token_bytes(token) for token in range(tokenizer.vocabulary_size)]
        for text, token in tokenizer.special_ids.items():
            self.tokens[token] = text.encode()
        self._tokenizer = tokenizer

    def __call__(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text).tolist()
        return ids


def llguidance_tokenizer(tokenizer: Tokenizer) -> llguidance.LLTokenizer:
    """The same vocabulary for llguidance; takes a fraction of a second, so make it once a model.

    Raises `UnsupportedModel` for a vocabulary without a special token.
    """
    return llguidance.LLTokenizer(_Vocabulary(tokenizer))  # type: ignore[arg-type]  # only this much is asked of it
