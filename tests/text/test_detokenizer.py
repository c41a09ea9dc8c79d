"""The incremental detokeniser against decoding the whole."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from radixrt.text.detokenizer import Detokenizer

pieces = st.lists(st.one_of(st.binary(max_size=6), st.text(max_size=4).map(str.encode)), max_size=12)


def decode(chunks: list[bytes]) -> list[str]:
    stream = Detokenizer()
    return [*map(stream.feed, chunks), stream.finish()]


@given(pieces, st.integers(1, 5))
def test_pieces_join_to_what_the_whole_decodes_to(chunks, size):
    whole = b"".join(chunks)
    equal_cuts = [whole[i : i + size] for i in range(0, len(whole), size)]
    assert "".join(decode(chunks)) == whole.decode("utf-8", "replace")
    assert "".join(decode(equal_cuts)) == whole.decode("utf-8", "replace")


@given(st.text())
def test_valid_text_fed_byte_by_byte_never_shows_a_replacement_character(text):
    text = text.replace("\ufffd", "")
    shown = decode([bytes([byte]) for byte in text.encode()])
    assert "".join(shown) == text
    assert all("\ufffd" not in piece for piece in shown)


def test_joined_emoji_and_accents_come_out_whole():
    text = "žluť 🧑‍🍳🥝 façade 書道"
    shown = [piece for piece in decode([bytes([byte]) for byte in text.encode()]) if piece]
    assert shown == list(text)


def test_a_character_cut_by_the_end_is_one_replacement_character():
    assert decode(["né🥝".encode()[:-1]]) == ["né", "\ufffd"]
