"""Every error a caller can meet, typed, and how an error crosses a process boundary.

An error says what was given, what is allowed and what to do about it. `field` names the argument or request field at
fault, when there is one. Where Python users expect a built-in kind (`ValueError` for a bad argument, `KeyError` for
an unknown variable) the class is also of that kind.
"""

from __future__ import annotations

import re
from collections.abc import Sequence


class RadixError(Exception):
    """Base of all errors raised by radixrt. `str(error)` is the message for people."""

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.field = field

    def __str__(self) -> str:
        return self.message


class InvalidRequest(RadixError, ValueError):
    """An argument is wrong in itself: `field` names it."""


class MissingChoices(InvalidRequest, AssertionError):
    """A `select` without options. SGLang asserts that there are some, so programs written for it may catch that."""


class NotSupported(InvalidRequest):
    """The chosen backend cannot do that: `field` names what was asked of it."""


class PromptTooLong(InvalidRequest):
    """The prompt can never fit the model's context or the KV pool; the message has the numbers."""


class QueueFull(RadixError):
    """As many requests wait as may: the message has the limit. Come again later."""


class InvalidConstraint(InvalidRequest):
    """A schema, regex or choice is wrong, or cannot be enforced exactly: the message names the path and the keyword."""


class InvalidPattern(InvalidConstraint, re.error):
    """A regular expression is wrong or cannot be followed. `re.error` too, which is what SGLang raises."""

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message, field=field)
        re.error.__init__(self, message)


class InvalidOutput(RadixError, ValueError):
    """What was generated is no value of the type that was asked for: as a rule `max_tokens` cut it."""


class DeadlineExceeded(RadixError, TimeoutError):
    """A run took longer than its `timeout`; what it was still generating has been aborted."""


class ModelNotFound(RadixError, ValueError):
    """No model by that name, folder or file."""


class UnsupportedModel(RadixError, ValueError):
    """The model's files are there, but their architecture or format is not known."""


class DownloadFailed(RadixError, OSError):
    """A model's files could not be fetched; the message says what to do without a network."""


class BackendUnavailable(RadixError, ValueError):
    """A kernel backend, dtype or device was asked for that this machine does not have."""


class WorkerUnavailable(RadixError):
    """The worker process could not start, died, or was closed."""


class TokenizerChanged(RadixError):
    """A server's tokenizer is another than before: token ids of the one mean nothing to the other."""


class ApiUnavailable(RadixError):
    """A chat API could not be reached, was overloaded, or broke its reply off: tries again did not help."""


class NotAuthorized(RadixError):
    """A chat API refused the key that it was given, or wants one."""


class ContentRefused(RadixError):
    """A chat API would not write the text, or go on with it."""


class TurnNotFollowed(RadixError):
    """A chat API wrote a turn in another way than the program: what it should begin with, and began with, is told."""


class Aborted(RadixError):
    """The request was aborted before it finished."""


class UnknownVariable(RadixError, KeyError):
    """A program state has no variable by that name; the message lists those it has."""


class GenerationFailed(RadixError):
    """A generation of a program failed; `__cause__` is the error that it failed with.

    `branch` is the path of forks to it ("fork 1 of 3", counted from 0 as in `forks[1]`), `node` its variable or number.
    """

    def __init__(self, program: str, branch: str, node: str, cause: BaseException) -> None:
        super().__init__(f"{program}, {branch}, {node}: {cause}", field=getattr(cause, "field", None))
        self.program = program
        self.branch = branch
        self.node = node
        self.__cause__ = cause


class JoinFailed(RadixError, ExceptionGroup[GenerationFailed]):
    """Branches of a fork failed, so that they cannot be joined; `exceptions` has one `GenerationFailed` for each."""

    def __new__(cls, failures: Sequence[GenerationFailed]) -> JoinFailed:
        return super().__new__(cls, "; ".join(str(failure) for failure in failures), failures)

    def __init__(self, failures: Sequence[GenerationFailed]) -> None:
        # The group's own `message` is read-only, and already what `RadixError` would set.
        self.field = None
        self.__cause__ = failures[0]

    def derive(self, failures: Sequence[GenerationFailed], /) -> JoinFailed:  # type: ignore[override]
        """What `except*` and `split` build of a part of the group."""
        return JoinFailed(failures)


class ScriptMismatch(RadixError, AssertionError):
    """A `Scripted` model was asked for what its script does not have, or was not asked for what it has."""


class InternalError(RadixError):
    """A fault on the runtime's side, not the caller's: the message says where to look."""


_BY_NAME: dict[str, type[RadixError]] = {
    kind.__name__: kind
    for kind in (
        InvalidRequest,
        MissingChoices,
        NotSupported,
        PromptTooLong,
        QueueFull,
        InvalidConstraint,
        InvalidPattern,
        InvalidOutput,
        DeadlineExceeded,
        ModelNotFound,
        UnsupportedModel,
        DownloadFailed,
        BackendUnavailable,
        WorkerUnavailable,
        TokenizerChanged,
        ApiUnavailable,
        NotAuthorized,
        ContentRefused,
        TurnNotFollowed,
        Aborted,
        UnknownVariable,
        ScriptMismatch,
        InternalError,
    )
}


def error_from_wire(kind: str, message: str, field: str | None) -> RadixError:
    """The error that `kind` names; one from a newer peer, unknown here, becomes an `InternalError`."""
    return _BY_NAME.get(kind, InternalError)(message, field=field)
