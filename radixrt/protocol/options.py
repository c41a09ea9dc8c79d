"""What a select chooses from."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from radixrt.errors import InvalidRequest


class Options(msgspec.Struct, frozen=True, omit_defaults=True):
    """The options of one select."""

    texts: tuple[str, ...]
    """Verbatim, white space included; see `check_options`."""
    unconditional: bool = False
    """Whether each option is also scored as a text of its own, without the prompt."""


def options_of(choices: object, *, unconditional: bool = False) -> Options:
    """A user's list of strings as options, each of them once: of equal ones the first stays.

    Raises as `check_options`.
    """
    return Options(tuple(dict.fromkeys(check_options(choices))), unconditional)


def check_options(choices: object) -> Sequence[str]:
    """`choices` itself, if it is a list of at least one string that is neither empty nor broken Unicode.

    Raises `InvalidRequest` that names `choices`, or the one at fault. The empty string is refused: it has no tokens, so
    nothing says how likely it is.
    """
    if isinstance(choices, str) or not isinstance(choices, Sequence) or not choices:
        raise InvalidRequest(f"choices is {choices!r}; it must be a list of strings, at least one", field="choices")
    for index, text in enumerate(choices):
        if not isinstance(text, str):
            raise InvalidRequest(f"choices[{index}] is {text!r}, not a string", field=f"choices[{index}]")
        if not text:
            raise InvalidRequest(
                f"choices[{index}] is empty; an option needs at least one character", field=f"choices[{index}]"
            )
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidRequest(f"choices[{index}] is no Unicode text: {error}", field=f"choices[{index}]") from None
    return choices
