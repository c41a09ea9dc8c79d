"""Sampling options: what a `gen` says, over what the call of its program says, over the defaults."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from radixrt.errors import InvalidRequest
from radixrt.protocol.constraint import CONSTRAINT_NAMES, with_constraint
from radixrt.protocol.sampling import SamplingParams, check

OPTION_NAMES = frozenset(SamplingParams.__struct_fields__) | frozenset(CONSTRAINT_NAMES)
"""What the call of a program may say about its generations."""


def given_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Those of `options` that are not None, checked and copied: a caller's list or dict is never kept.

    Raises `InvalidRequest`, naming the option, for one that is wrong in itself.
    """
    given = with_constraint({name: value for name, value in options.items() if value is not None})
    if isinstance(given.get("stop"), str):
        given["stop"] = (given["stop"],)
    params = _convert(given)
    if "max_tokens" not in given and params.min_tokens > params.max_tokens:
        # A call of the program may still allow more tokens than the default does.
        params = msgspec.structs.replace(params, max_tokens=params.min_tokens)
    check(params)
    return {name: getattr(params, name) for name in given}


def sampling_params(gen: Mapping[str, Any], defaults: Mapping[str, Any]) -> SamplingParams:
    """The parameters of one generation: `gen`'s options over `defaults`, both from `given_options`.

    Raises `InvalidRequest` when the two contradict each other.
    """
    params = SamplingParams(**{**defaults, **gen})
    check(params)
    return params


def _convert(options: Mapping[str, Any]) -> SamplingParams:
    try:
        return msgspec.convert(options, SamplingParams)
    except msgspec.ValidationError as error:
        problem, _, place = str(error).partition(" - at ")
        name = re.search(r"\$\.(\w+)", place)
        field = name[1] if name else "options"
        problem = problem.replace("`", "").lower()
        raise InvalidRequest(f"{field} is {options.get(field)!r}: {problem}", field=field) from None
