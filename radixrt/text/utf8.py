"""Text to UTF-8 at the edge, where what is no Unicode text is refused."""

from __future__ import annotations

from radixrt.errors import InvalidRequest


def encode_utf8(text: str, field: str) -> bytes:
    """`text` as UTF-8; raises `InvalidRequest` naming `field` for an unpaired surrogate, which UTF-8 cannot hold.

    >>> encode_utf8("ž", field="prompt")
    b'\\xc5\\xbe'
    """
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        code = ord(text[error.start])
        raise InvalidRequest(
            f"{field} has an unpaired surrogate (U+{code:04X}) at character {error.start}; text must be Unicode",
            field=field,
        ) from error
