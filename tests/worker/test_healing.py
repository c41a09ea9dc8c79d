"""Token healing: what may come in place of the prompt's last token, and what is shown and counted of it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from radixrt.grammar.interface import mask_words
from radixrt.protocol.ids import IdArray, as_ids, unpack_ids
from radixrt.protocol.sampling import SamplingParams
from radixrt.worker.healing import Healing, TokenIndex
from radixrt.worker.output import Output

END = 0


class Words:
    """A vocabulary of the words given; token 0 is special, and the last ones are the single letters."""

    def __init__(self, *words: bytes) -> None:
        self._pieces = [b"", *words, *(bytes([letter]) for letter in b"abcdefghijklmnopqrstuvwxyz:/ ")]

    @property
    def vocabulary_size(self) -> int:
        return len(self._pieces)

    def token_bytes(self, token: int) -> bytes:
        return self._pieces[token]

    def encode_bytes(self, data: bytes) -> IdArray:
        return as_ids([len(self._pieces) - 29 + b"abcdefghijklmnopqrstuvwxyz:/ ".index(byte) for byte in data])


small = st.lists(st.sampled_from([b"a", b"b", b"\xff", b"\0"]), min_size=1, max_size=4).map(b"".join)


@given(st.lists(small, max_size=20), small)
def test_the_index_finds_all_tokens_that_begin_with_a_prefix(vocabulary: list[bytes], prefix: bytes) -> None:
    words = Words(*vocabulary)
    expected = {t for t in range(words.vocabulary_size) if words.token_bytes(t).startswith(prefix)}
    assert set(TokenIndex(words).beginning_with(prefix).tolist()) == expected


def allowed(mask: np.ndarray) -> set[int]:
    return set(np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist())


def restricted(words: Words, token: int, end_ids: tuple[int, ...] = (END,), mask: set[int] | None = None) -> set[int]:
    bits = np.zeros(mask_words(words.vocabulary_size) * 32, np.uint8)
    bits[list(range(len(bits))) if mask is None else list(mask)] = 1
    packed = np.packbits(bits, bitorder="little").view(np.int32)
    Healing(token, words.token_bytes(token), TokenIndex(words), end_ids).restrict(packed)
    return allowed(packed)


def test_only_tokens_that_begin_with_its_text_come_in_its_place() -> None:
    words = Words(b"th", b"the", b"this", b"t", b"a")
    assert restricted(words, 1) == {1, 2, 3}
    assert restricted(words, 1, end_ids=(END, 2)) == {1, 3}
    assert restricted(words, 1, mask={3, 4}) == {3}


def test_if_a_grammar_leaves_none_of_them_the_token_itself_comes_back() -> None:
    assert restricted(Words(b"th", b"the"), 1, mask={5, 6}) == {1}


def run(words: Words, tokens: list[int], healed: int, **params: object) -> tuple[bytes, Output, object]:
    output = Output(SamplingParams(**params), frozenset([END]), 100, words, healed=healed)  # type: ignore[arg-type]
    shown = b""
    for token in tokens:
        text, end = output.accept(token)
        shown += text
        if end is not None:
            return shown, output, end
    return shown, output, None


def test_the_prompt_s_part_of_the_first_token_is_not_shown() -> None:
    assert run(Words(b"the", b"re"), [1, 2], healed=2)[0] == b"ere"
    assert run(Words(b"th", b"re"), [1, 2], healed=2)[0] == b"re"


@pytest.mark.parametrize("stops", [{"stop": ("th",)}, {"stop_regex": ("t?h",)}])
def test_a_stop_lies_in_what_was_generated_alone(stops: dict[str, object]) -> None:
    """D13: a match that begins in the prompt does not count, nor does one in the token that says both."""
    shown, _, end = run(Words(b"the", b" oth", b"er"), [1, 2, 3], healed=2, **stops)
    assert shown == b"e o"
    assert end is not None
    assert end.kept == 1
    assert end.matched == "th"


def test_a_stop_inside_the_first_token_leaves_the_prompt_s_part_in_the_context() -> None:
    words = Words(b"there")
    shown, _, end = run(words, [1], healed=2, stop=("re",))
    assert shown == b"e"
    assert end is not None
    assert end.kept == 0
    assert b"".join(map(words.token_bytes, unpack_ids(end.tail).tolist())) == b"the"
    shown, _, end = run(words, [1], healed=2, stop=("er",))
    assert (shown, b"".join(map(words.token_bytes, unpack_ids(end.tail).tolist()))) == (b"", b"th")
