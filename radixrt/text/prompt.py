"""The join rule: how the pieces of a prompt become token ids.

Neighbouring constants are tokenised as one text, up to a special token or given ids. That is how a tokenizer reads a
rendered conversation, so what is put together from pieces has the ids of the whole; but what looks like a special token
in plain text stays text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from radixrt.errors import InvalidRequest
from radixrt.protocol.ids import IdArray, as_ids, unpack_ids
from radixrt.text.tokenizer import Tokenizer
from radixrt.text.utf8 import encode_utf8

_FIELD = "prompt"


def checked_ids(packed: bytes, tokenizer: Tokenizer) -> IdArray:
    """Ids that somebody gave; raises `InvalidRequest` unless the vocabulary has them all."""
    if len(packed) % 4:
        raise InvalidRequest(f"token ids are int32, but {len(packed)} bytes were given", field=_FIELD)
    ids = unpack_ids(packed)
    size = tokenizer.vocabulary_size
    wrong = ids[(ids < 0) | (ids >= size)]
    if wrong.size:
        raise InvalidRequest(f"the prompt has token {wrong[0]}; ids run from 0 to {size - 1}", field=_FIELD)
    return ids


class SpecialTokens:
    """Finds the spellings of special tokens in text: the leftmost, of those that start together the longest."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._ids = {text: id for text, id in tokenizer.special_ids.items() if text}
        spellings = sorted(self._ids, key=len, reverse=True)
        self.pattern = re.compile("|".join(map(re.escape, spellings)) or "(?!)")

    def split(self, text: str) -> list[str | int]:
        """`text` as stretches of plain text and ids of special tokens; empty stretches are left out."""
        parts: list[str | int] = []
        start = 0
        for match in self.pattern.finditer(text):
            parts += [text[start : match.start()], self._ids[match.group()]]
            start = match.end()
        parts.append(text[start:])
        return [part for part in parts if part != ""]


class PromptBuilder:
    """Puts a stretch of context together; `ids` tokenises it. All text methods raise `InvalidRequest` for text that
    is not Unicode."""

    def __init__(self, tokenizer: Tokenizer, specials: SpecialTokens) -> None:
        self._tokenizer = tokenizer
        self._specials = specials
        self._plain: list[str] = []
        """Text that is not tokenised yet, since more may follow."""
        self._parts: list[str | IdArray] = []
        """Stretches of plain text, and ids, in turn."""
        self._starts_as_text: bool | None = None
        """Whether the first thing added was text, not ids or a template's markup. None: nothing was."""
        self.ends_as_text = False
        """Whether the last thing added was text that somebody wrote, to its end: no ids, markup or special token."""

    @property
    def empty(self) -> bool:
        """Whether nothing was added."""
        return self._starts_as_text is None

    def add_plain(self, text: str) -> None:
        """Text as it stands."""
        encode_utf8(text, _FIELD)
        if text:
            self._begin(as_text=True)
            self._plain.append(text)
            self.ends_as_text = True

    def add_rendered(self, text: str) -> None:
        """Text whose special tokens are recognised: a prompt that somebody rendered."""
        if text:
            self._begin(as_text=True)
            self.add_markup(text)
            self.ends_as_text = bool(self._plain)

    def add_markup(self, text: str) -> None:
        """The same, written by a chat template, which writes the BOS where it wants one."""
        encode_utf8(text, _FIELD)
        for part in self._specials.split(text):
            self.ends_as_text = False
            self._begin(as_text=False)
            if isinstance(part, str):
                self._plain.append(part)
            else:
                self._join()
                self._parts.append(as_ids([part]))

    def add_ids(self, ids: IdArray) -> None:
        """Token ids as they are."""
        if ids.size:
            self._begin(as_text=False)
            self._join()
            self._parts.append(ids)
            self.ends_as_text = False

    def add_border(self) -> None:
        """What was added is tokenised apart from what follows."""
        self._join()
        self.ends_as_text = False

    def take_back(self, *, starts_context: bool) -> None:
        """Leave out the last token of the text that was added last; raises `InvalidRequest` if there is none."""
        self._join()
        text = self._parts.pop() if self._parts else None
        if not isinstance(text, str):
            raise InvalidRequest("healed is given, but no text stands before what was generated", field=_FIELD)
        rest = self._tokenizer.encode(text, starts_context=starts_context and not self._parts)[:-1]
        if rest.size:
            self._parts.append(rest)

    def replace(self, ids: IdArray) -> None:
        """`ids` (at least one) in place of all that was added, a BOS that it gets included."""
        self._begin(as_text=False)
        self._plain.clear()
        self._parts = [ids]
        self.ends_as_text = False

    def ids(self, *, starts_context: bool) -> IdArray:
        """What was added, as ids. Text that starts a context gets the BOS that the tokenizer adds, once."""
        self._join()
        parts = [
            self._tokenizer.encode(part, starts_context=starts_context and index == 0)
            if isinstance(part, str)
            else part
            for index, part in enumerate(self._parts)
        ]
        bos = self._tokenizer.bos_id
        if starts_context and self._starts_as_text and self._tokenizer.adds_bos and bos is not None:
            already = parts and parts[0][0] == bos
            parts = parts if already else [as_ids([bos]), *parts]
        return np.concatenate(parts) if parts else as_ids([])

    def endings(self, texts: Sequence[str], *, starts_context: bool) -> tuple[IdArray, list[IdArray]]:
        """What was added, with each of `texts` behind it in turn: the ids up to the last place that no text can change,
        and for each text those after it."""
        tail = "".join(self._plain)
        self._plain.clear()
        if self._starts_as_text is None:
            self._begin(as_text=True)
        begins = starts_context and not self._parts
        head = self.ids(starts_context=starts_context)
        return head, [self._tokenizer.encode(tail + text, starts_context=begins) for text in texts]

    def _begin(self, *, as_text: bool) -> None:
        if self._starts_as_text is None:
            self._starts_as_text = as_text

    def _join(self) -> None:
        text = "".join(self._plain)
        self._plain.clear()
        if text:
            self._parts.append(text)
