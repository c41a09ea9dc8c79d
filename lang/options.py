"""Sampling options: what a `gen` says, over what the call of its program says, over the defaults.

Options go by the names of `SamplingParams` and of its constraints. SGLang's `return_logprob` and `top_logprobs_num` say
what `logprobs` does in two, and `dtype` is a constraint with stop strings of its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypedDict

import msgspec

from radixrt.errors import InvalidRequest
from radixrt.lang.dtypes import written
from radixrt.protocol.constraint import CONSTRAINT_NAMES, Regex, with_constraint
from radixrt.protocol.sampling import MAX_TOP_LOGPROBS, SamplingParams, check

if TYPE_CHECKING:
    from radixrt.lang.dtypes import DType

_LOGPROBS = ("return_logprob", "top_logprobs_num")
OPTION_NAMES = frozenset((*SamplingParams.__struct_fields__, *CONSTRAINT_NAMES, *_LOGPROBS))
"""What the call of a program may say about its generations."""
_MORE_STOPS = "more_stops"
"""Among given options: stop strings that a `dtype` brings, beside those that the gen or the call gives."""


class SamplingOptions(TypedDict, total=False):
    """What any generation may be told by name, for type checkers; `lang.expressions.gen` says what it means."""

    temperature: float | None
    top_p: float | None
    top_k: int | None
    min_p: float | None
    frequency_penalty: float | None
    presence_penalty: float | None
    repetition_penalty: float | None
    logit_bias: Mapping[int, float] | None
    seed: int | None
    stop_regex: str | Sequence[str] | None
    ignore_eos: bool | None
    heal: bool | None
    return_logprob: bool | None
    logprob_start_len: int | None
    top_logprobs_num: int | None
    return_text_in_logprobs: bool | None
    logprobs: int | None


class GenOptions(SamplingOptions, total=False):
    """And what a `gen` may be told besides."""

    dtype: DType | None
    regex: str | None
    json_schema: str | bool | Mapping[str, Any] | type | None
    json_object: bool | None


def given_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Those of `options` that are not None, checked and copied: a caller's list or dict is never kept.

    Raises `InvalidRequest`, naming the option, for one that is wrong in itself (`InvalidPattern` for a regular
    expression that is).
    """
    given = with_constraint(_without_dtype({name: value for name, value in options.items() if value is not None}))
    for name in ("stop", "stop_regex"):
        if isinstance(given.get(name), str):
            given[name] = (given[name],)
    if isinstance(constraint := given.get("constraint"), Regex):
        _check_regex(constraint.pattern)
    given = _with_logprobs_in_two(given)
    params = _convert(_without_logprobs({name: value for name, value in given.items() if name != _MORE_STOPS}))
    if "max_tokens" not in given and params.min_tokens > params.max_tokens:
        # A call of the program may still allow more tokens than the default does.
        params = msgspec.structs.replace(params, max_tokens=params.min_tokens)
    check(params)
    if params.stop_regex:
        from radixrt.text.stop_patterns import stop_automaton  # slow to import, and seldom wanted

        stop_automaton(params.stop_regex)
    return {name: getattr(params, name, value) for name, value in given.items()}


def sampling_params(gen: Mapping[str, Any], defaults: Mapping[str, Any]) -> SamplingParams:
    """The parameters of one generation: `gen`'s options over `defaults`, both from `given_options`.

    Raises `InvalidRequest` when the two contradict each other.
    """
    merged = {**defaults, **gen}
    if gen.get("top_logprobs_num") and not merged.get("return_logprob"):
        raise InvalidRequest("top_logprobs_num is given without return_logprob", field="top_logprobs_num")
    stops = (*merged.get("stop", ()), *merged.pop(_MORE_STOPS, ()))
    logprobs = (merged.get("top_logprobs_num") or 0) if merged.get("return_logprob") else None
    params = SamplingParams(**{**_without_logprobs(merged), "stop": stops, "logprobs": logprobs})
    check(params)
    return params


def _without_dtype(options: dict[str, Any]) -> dict[str, Any]:
    """`options` with what a `dtype` among them stands for."""
    if "dtype" not in options:
        return options
    how = written(options.pop("dtype"))
    for name in CONSTRAINT_NAMES:
        if name in options:
            raise InvalidRequest(f"dtype and {name} are given; a generation has one constraint", field=name)
    return {**options, "regex": how.pattern, _MORE_STOPS: how.stops}


def _with_logprobs_in_two(given: dict[str, Any]) -> dict[str, Any]:
    """What `given` says of log-probabilities as SGLang says it, so that a gen and its call may each say one half."""
    if not isinstance(given.get("return_logprob", False), bool):
        raise InvalidRequest(
            f"return_logprob is {given['return_logprob']!r}; it must be True or False", field="return_logprob"
        )
    for name in ("logprobs", "top_logprobs_num"):
        count = given.get(name, 0)
        # A bool is an int to Python, but no number to a worker, which would drop it and all that came with it.
        if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= MAX_TOP_LOGPROBS:
            raise InvalidRequest(f"{name} is {count!r}; it must be from 0 to {MAX_TOP_LOGPROBS}", field=name)
    if "logprobs" not in given:
        return given
    if both := [name for name in _LOGPROBS if name in given]:
        raise InvalidRequest(f"logprobs and {both[0]} are given; they say the same", field=both[0])
    count = given.pop("logprobs")
    return {**given, "return_logprob": True, "top_logprobs_num": count}


def _without_logprobs(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name not in _LOGPROBS}


@lru_cache(maxsize=1024)
def _check_regex(pattern: str) -> None:
    """Raise `InvalidPattern` for a pattern that no backend could follow."""
    from radixrt.text.regex.translate import full_match_pattern  # slow to import, and seldom wanted

    full_match_pattern(pattern)


def _convert(options: Mapping[str, Any]) -> SamplingParams:
    try:
        return msgspec.convert(options, SamplingParams)
    except msgspec.ValidationError as error:
        problem, _, place = str(error).partition(" - at ")
        name = re.search(r"\$\.(\w+)", place)
        field = name[1] if name else "options"
        problem = problem.replace("`", "").lower()
        raise InvalidRequest(f"{field} is {options.get(field)!r}: {problem}", field=field) from None
