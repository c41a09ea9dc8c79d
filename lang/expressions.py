"""What users write: expressions that a program appends to its state with `s += ...`.

    s += "Question: " + question + "\nAnswer:" + gen("answer", max_tokens=16, stop="\n")

An expression is plain, immutable data. It may be appended many times and to several states; nothing runs until then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from radixrt.errors import InvalidRequest
from radixrt.lang.options import given_options


class Expression:
    """Base of all expressions: they concatenate with `+`, among themselves and with strings."""

    __slots__ = ()

    def __add__(self, other: Expression | str) -> Sequenced:
        if not isinstance(other, Expression | str):
            return NotImplemented
        return Sequenced((*self.pieces(), *as_expression(other).pieces()))

    def __radd__(self, other: str) -> Sequenced:
        if not isinstance(other, str):
            return NotImplemented
        return as_expression(other) + self

    def pieces(self) -> Iterator[Piece]:
        """The expression as its primitive pieces, in order."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Constant(Expression):
    """Text that the author wrote. With `raw` it is a rendered prompt: its special tokens are recognised."""

    text: str
    raw: bool = False

    def pieces(self) -> Iterator[Piece]:
        yield self


@dataclass(frozen=True, slots=True)
class RoleEdge(Expression):
    """The beginning or the end of a chat turn."""

    role: str
    edge: Literal["begin", "end"]

    def pieces(self) -> Iterator[Piece]:
        yield self


@dataclass(frozen=True, slots=True)
class Gen(Expression):
    """Text that the model is to write. `options` are the sampling parameters that were given, and no others."""

    name: str | None
    options: Mapping[str, Any]

    def pieces(self) -> Iterator[Piece]:
        yield self


@dataclass(frozen=True, slots=True)
class Sequenced(Expression):
    """Pieces one after another."""

    items: tuple[Piece, ...]

    def pieces(self) -> Iterator[Piece]:
        return iter(self.items)


Piece: TypeAlias = Constant | RoleEdge | Gen


def as_expression(value: object) -> Expression:
    """`value` as an expression; raises `InvalidRequest` for what is neither an expression nor a string."""
    if isinstance(value, Expression):
        return value
    if isinstance(value, str):
        return Constant(value)
    raise InvalidRequest(
        f"a state takes strings and expressions such as gen(...), not {value!r}; wrap other values in str(...)"
    )


def raw(text: str) -> Constant:
    """A rendered prompt: what looks like a special token in `text` becomes one, as nowhere else in a program."""
    if not isinstance(text, str):
        raise InvalidRequest(f"raw takes a string, not {text!r}", field="text")
    return Constant(text, raw=True)


def gen(
    name: str | None = None,
    max_tokens: int | None = None,
    min_tokens: int | None = None,
    n: int | None = None,
    stop: str | Sequence[str] | None = None,
    stop_token_ids: Sequence[int] | None = None,
    *,
    temperature: float | None = None,
    top_p: float | None = None,
    top_k: int | None = None,
    min_p: float | None = None,
    frequency_penalty: float | None = None,
    presence_penalty: float | None = None,
    repetition_penalty: float | None = None,
    logit_bias: Mapping[int, float] | None = None,
    seed: int | None = None,
    ignore_eos: bool | None = None,
    logprobs: int | None = None,
) -> Gen:
    """Let the model continue, and keep what it writes as the variable `name`.

    What is not given comes from the call of the program (`run(temperature=0)`), else from
    `protocol.sampling.SamplingParams`, which says what each parameter means. With `n` > 1 the variable is a list of
    texts, and the program goes on with the first. Without a name the text is only added.

    Raises `InvalidRequest`, naming the parameter, for a value that is wrong whatever the call says.
    """
    if name is not None and not (isinstance(name, str) and name):
        raise InvalidRequest(f"name is {name!r}; a variable's name is a non-empty string", field="name")
    options = {
        "max_tokens": max_tokens,
        "min_tokens": min_tokens,
        "n": n,
        "stop": stop,
        "stop_token_ids": stop_token_ids,
        "temperature": temperature,
        "top_p": top_p,
        "top_k": top_k,
        "min_p": min_p,
        "frequency_penalty": frequency_penalty,
        "presence_penalty": presence_penalty,
        "repetition_penalty": repetition_penalty,
        "logit_bias": logit_bias,
        "seed": seed,
        "ignore_eos": ignore_eos,
        "logprobs": logprobs,
    }
    return Gen(name, given_options(options))
