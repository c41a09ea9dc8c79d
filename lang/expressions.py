"""What users write: expressions that a program appends to its state with `s += ...`.

    s += "Question: " + question + "\nAnswer:" + gen("answer", max_tokens=16, stop="\n")

An expression is plain, immutable data. It may be appended many times and to several states; nothing runs until then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar, Unpack, overload

from radixrt.errors import InvalidRequest, MissingChoices
from radixrt.lang.choices import Decides, requires_unconditional
from radixrt.lang.choices import choices_method as resolved_method
from radixrt.lang.dtypes import DType
from radixrt.lang.options import GenOptions, given_options
from radixrt.lang.typed import TypedOutput, typed_output
from radixrt.protocol.options import Options, options_of

if TYPE_CHECKING:
    from radixrt.lang.reasoning import ReasoningFormat

_GREEDY = 1e-5
"""SGLang takes temperatures up to this as 0."""


T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


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
class Gen(Expression, Generic[T_co]):
    """Text that the model is to write; the variable's value is a `T_co`, as a rule the text.

    `options` are the sampling parameters that were given, and no others.
    """

    name: str | None
    options: Mapping[str, Any]
    reasoning: ReasoningFormat | None = None
    """How the text is taken apart into reasoning and answer, if it is."""
    output: TypedOutput | None = None
    """How the value is made of the text. None: it is the text."""

    def pieces(self) -> Iterator[Piece]:
        yield self


@dataclass(frozen=True, slots=True)
class Select(Expression):
    """Text that is one of the options."""

    name: str | None
    options: Options
    method: Decides

    def pieces(self) -> Iterator[Piece]:
        yield self


@dataclass(frozen=True, slots=True)
class Sequenced(Expression):
    """Pieces one after another."""

    items: tuple[Piece, ...]

    def pieces(self) -> Iterator[Piece]:
        return iter(self.items)


Piece: TypeAlias = Constant | RoleEdge | Gen[Any] | Select


def as_expression(value: object) -> Expression:
    """`value` as an expression; raises `InvalidRequest` for what is neither an expression nor a string."""
    if isinstance(value, Expression):
        return value
    if isinstance(value, str):
        return Constant(str(value))  # a subclass may compare otherwise
    raise InvalidRequest(
        f"a state takes strings and expressions such as gen(...), not {value!r}; wrap other values in str(...)"
    )


def raw(text: str) -> Constant:
    """A rendered prompt: what looks like a special token in `text` becomes one, as nowhere else in a program."""
    if not isinstance(text, str):
        raise InvalidRequest(f"raw takes a string, not {text!r}", field="text")
    return Constant(str(text), raw=True)


@overload
def gen(
    name: str | None = None,
    max_tokens: int | None = None,
    min_tokens: int | None = None,
    n: None = None,
    stop: str | Sequence[str] | None = None,
    stop_token_ids: Sequence[int] | None = None,
    *,
    schema: type[T],
    **options: Unpack[GenOptions],
) -> Gen[T]: ...
@overload
def gen(
    name: str | None = None,
    max_tokens: int | None = None,
    min_tokens: int | None = None,
    n: None = None,
    stop: str | Sequence[str] | None = None,
    stop_token_ids: Sequence[int] | None = None,
    *,
    schema: None = None,
    **options: Unpack[GenOptions],
) -> Gen[str]: ...
@overload
def gen(
    name: str | None = None,
    max_tokens: int | None = None,
    min_tokens: int | None = None,
    n: int | None = None,
    stop: str | Sequence[str] | None = None,
    stop_token_ids: Sequence[int] | None = None,
    *,
    schema: object = None,
    choices: Sequence[str] | None = None,
    choices_method: Decides | str | None = None,
    **options: Unpack[GenOptions],
) -> Gen[Any] | Select: ...
def gen(
    name: str | None = None,
    max_tokens: int | None = None,
    min_tokens: int | None = None,
    n: int | None = None,
    stop: str | Sequence[str] | None = None,
    stop_token_ids: Sequence[int] | None = None,
    stop_regex: str | Sequence[str] | None = None,
    temperature: float | None = None,
    top_p: float | None = None,
    top_k: int | None = None,
    min_p: float | None = None,
    frequency_penalty: float | None = None,
    presence_penalty: float | None = None,
    ignore_eos: bool | None = None,
    return_logprob: bool | None = None,
    logprob_start_len: int | None = None,
    top_logprobs_num: int | None = None,
    return_text_in_logprobs: bool | None = None,
    dtype: DType | None = None,
    choices: Sequence[str] | None = None,
    choices_method: Decides | str | None = None,
    regex: str | None = None,
    json_schema: str | bool | Mapping[str, Any] | type | None = None,
    *,
    json_object: bool | None = None,
    repetition_penalty: float | None = None,
    logit_bias: Mapping[int, float] | None = None,
    seed: int | None = None,
    logprobs: int | None = None,
    heal: bool | None = None,
    schema: Any = None,
) -> Gen[Any] | Select:
    """Let the model continue, and keep what it writes as the variable `name`.

    What is not given comes from the call of the program (`run(temperature=0)`), else from
    `protocol.sampling.SamplingParams`, which says what each parameter means. With `n` > 1 the variable is a list of
    texts, and the program goes on with the first. Without a name the text is only added.

    The text may be constrained: to match all of `regex`, to be JSON that `json_schema` (a dict, JSON text or a Pydantic
    model's class) accepts, or to be any JSON object. It is then complete, unless `max_tokens` or a stop string cuts it.
    `dtype` (int, float, str, bool, or the name of one) is a regex for values of that type, which stay text; a number
    ends at a space or a line break, whatever other stop strings there are.

    `return_logprob` has `get_meta_info(name)` tell each token's log-probability, and those of the `top_logprobs_num`
    likeliest ones; `logprobs=k` is both in one. `logprob_start_len` asks for those of the whole context's tokens from
    that position on, too (0: all; they are computed anew, not taken from the cache), `return_text_in_logprobs` for the
    text of each token.

    With `schema`, a type (a Pydantic model, dataclass, `TypedDict`, `Literal`, `Enum`, `list[...]`, `int`, see
    `lang.typed`), the text is JSON of that type, and the variable's value an instance. Text that `max_tokens` or a stop
    string cut is none: reading the variable then raises `GenerationFailed`, whose cause is an `InvalidOutput`.

    With `choices` it is `select(name, choices, ...)`, and the other parameters say nothing: a `temperature` neither.

    Raises `InvalidRequest`, naming the parameter, for a value that is wrong whatever the call says: `InvalidPattern`
    (which is a `re.error` too) for a `regex` or `stop_regex`.
    """
    _check_name(name)
    if schema is not None and (json_schema is not None or choices is not None):
        other = "choices" if choices is not None else "json_schema"
        raise InvalidRequest(f"schema and {other} are given; a generation has one constraint", field="schema")
    if choices is not None:
        given_options({"temperature": temperature})
        return select(name, choices, choices_method=choices_method)
    if choices_method is not None:
        raise InvalidRequest("choices_method is given without choices", field="choices_method")
    output = None
    if schema is not None:
        output = typed_output(schema)
        json_schema = output.schema
    options = {
        "max_tokens": max_tokens,
        "min_tokens": min_tokens,
        "n": n,
        "stop": stop,
        "stop_token_ids": stop_token_ids,
        "stop_regex": stop_regex,
        "temperature": temperature,
        "top_p": top_p,
        "top_k": top_k,
        "min_p": min_p,
        "frequency_penalty": frequency_penalty,
        "presence_penalty": presence_penalty,
        "ignore_eos": ignore_eos,
        "return_logprob": return_logprob,
        "logprob_start_len": logprob_start_len,
        "top_logprobs_num": top_logprobs_num,
        "return_text_in_logprobs": return_text_in_logprobs,
        "dtype": dtype,
        "regex": regex,
        "json_schema": json_schema,
        "json_object": json_object,
        "repetition_penalty": repetition_penalty,
        "logit_bias": logit_bias,
        "seed": seed,
        "logprobs": logprobs,
        "heal": heal,
    }
    return Gen(name, given_options(options), output=output)


def select(
    name: str | None = None,
    choices: Sequence[str] | None = None,
    temperature: float = 0.0,
    choices_method: Decides | str | None = None,
) -> Select:
    """Continue with the likeliest of `choices`, and keep it as the variable `name`.

    Each option is scored behind the same context, its white space as it stands; equal options count once. What
    "likeliest" means is `choices_method`'s to say, by name or as an object (`lang.choices`):
    "token_length_normalized" (the default), "greedy_token_selection" or "unconditional_likelihood_normalized".
    `get_meta_info(name)` has the scores.

    Raises `InvalidRequest`, naming the parameter: for no options, an empty one or one that is no string, an unknown
    method, or a temperature other than 0 (a select draws nothing). `MissingChoices` if there are no `choices` at all.
    """
    _check_name(name)
    if choices is None:
        raise MissingChoices("select takes choices, a list of strings", field="choices")
    if not isinstance(temperature, int | float) or not 0 <= temperature <= _GREEDY:
        raise InvalidRequest(
            f"temperature is {temperature!r}; a select draws nothing: leave it at 0", field="temperature"
        )
    method = resolved_method(choices_method)
    return Select(name, options_of(choices, unconditional=requires_unconditional(method)), method)


def _check_name(name: object) -> None:
    if name is not None and not (isinstance(name, str) and name):
        raise InvalidRequest(f"name is {name!r}; a variable's name is a non-empty string", field="name")
