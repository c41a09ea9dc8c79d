"""Which bytes a token of a vocabulary stands for, in the two notations there are."""

from __future__ import annotations

import re

_SPACE = "\N{LOWER ONE EIGHTH BLOCK}"
"""How SentencePiece writes a space."""
_BYTE_PIECE = re.compile(r"<0x([0-9A-F]{2})>")


def _byte_letters() -> dict[str, int]:
    """The printable character that stands for each byte (GPT-2's `bytes_to_unicode`)."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {chr(byte): byte for byte in printable}
    return letters | {chr(256 + i): byte for i, byte in enumerate(others)}


BYTE_LETTERS = _byte_letters()
LETTER_OF_BYTE = {byte: letter for letter, byte in BYTE_LETTERS.items()}


def byte_level_bytes(piece: str) -> bytes:
    """The bytes of a byte-level BPE piece.

    >>> byte_level_bytes("Ġcafé".replace("é", "Ã©")).decode()
    ' café'
    """
    try:
        return bytes(BYTE_LETTERS[letter] for letter in piece)
    except KeyError:  # A token that was added by hand, in plain letters.
        return piece.encode()


def sentencepiece_bytes(piece: str) -> bytes:
    """The bytes of a SentencePiece piece.

    >>> sentencepiece_bytes("▁the"), sentencepiece_bytes("<0x0A>")
    (b' the', b'\\n')
    """
    byte = _BYTE_PIECE.fullmatch(piece)
    return bytes([int(byte[1], 16)]) if byte else piece.replace(_SPACE, " ").encode()
