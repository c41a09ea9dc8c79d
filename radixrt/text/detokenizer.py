"""Bytes to text, piece by piece: a character is never split, and bytes that are no UTF-8 show as U+FFFD."""

from __future__ import annotations

import codecs

_UTF8 = codecs.getincrementaldecoder("utf-8")


class Detokenizer:
    """Decodes one stream. The pieces together are `whole.decode("utf-8", "replace")`, however the bytes were cut.

    >>> stream = Detokenizer()
    >>> [stream.feed(b"\\xf0\\x9f"), stream.feed(b"\\xa5\\x9d!"), stream.finish()]
    ['', '🥝!', '']
    """

    def __init__(self) -> None:
        self._decoder = _UTF8("replace")

    def feed(self, data: bytes) -> str:
        """The characters that are whole by now and not yet returned."""
        return self._decoder.decode(data)

    def finish(self) -> str:
        """What the end leaves: one U+FFFD for a character that never became whole, else nothing."""
        return self._decoder.decode(b"", final=True)
