"""Seeded text: the same words for the same seed, none of which mean anything."""

from __future__ import annotations

import numpy as np

_ONSETS = (*"bdfgklmnprstvz", "br", "dr", "fl", "gr", "pl", "st", "tr")
_VOWELS = ("a", "e", "i", "o", "u", "ai", "ou")
_SYLLABLES = [onset + vowel for onset in _ONSETS for vowel in _VOWELS]
WORDS = tuple(first + second for first in _SYLLABLES for second in _SYLLABLES)[::29]
"""About 750 of them, each two syllables."""


class Texts:
    """Texts of one seed, each call another one."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def number(self, least: int, most: int) -> int:
        """From `least` to `most`, both included."""
        return int(self._rng.integers(least, most + 1))

    def words(self, least: int, most: int | None = None) -> str:
        """So many words with spaces between them."""
        count = self.number(least, least if most is None else most)
        return " ".join(WORDS[i] for i in self._rng.integers(0, len(WORDS), count))

    def sentence(self, least: int, most: int | None = None) -> str:
        """So many words with a full stop."""
        return self.words(least, most).capitalize() + "."

    def paragraph(self, sentences: int) -> str:
        """So many sentences of 8 to 14 words."""
        return " ".join(self.sentence(8, 14) for _ in range(sentences))
