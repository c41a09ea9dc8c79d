"""Arguments that a trace does not know: they stand in texts by their names, and nobody can look into them."""

from __future__ import annotations

import re
from typing import Any, NoReturn

_BEGIN, _END = "\ue000", "\ue001"
"""Around a marked argument's name: characters for private use, which no author writes."""
_MARK = re.compile(f"{_BEGIN}([^{_END}]*){_END}")


class TraceStopped(BaseException):
    """A trace cannot go on: the program wants to know what only a run knows.

    It is no `Exception`, so that the program's own handlers let it by.
    """


class Marked(str):
    """The argument `name`. It may be put into texts, by `+`, `join` and f-strings; all else stops the trace."""

    __slots__ = ()

    def __new__(cls, name: str) -> Marked:
        return super().__new__(cls, f"{_BEGIN}{name}{_END}")

    def _stop(self, *_: Any) -> NoReturn:
        raise TraceStopped(f"the program looks into its argument {shown_marks(str(self))}")

    __iter__ = __len__ = __bool__ = __getitem__ = __contains__ = __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = (
        _stop
    )
    __index__ = __int__ = __float__ = __getattr__ = __call__ = __mul__ = __mod__ = _stop
    __hash__ = str.__hash__

    def __getattribute__(self, name: str) -> Any:
        # A string's own methods would answer for the mark: `startswith` no, whatever the argument may be.
        if name.startswith("__") or name in ("join", "_stop"):
            return super().__getattribute__(name)
        self._stop()


def shown_marks(text: str) -> str:
    """`text` with marked arguments as people write them: `{name}`."""
    return _MARK.sub(r"{\1}", text) if _BEGIN in text else text


def before_marks(text: str) -> str:
    """What stands before the first marked argument."""
    return text.partition(_BEGIN)[0]
