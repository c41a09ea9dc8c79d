"""Fields that requests of several routes share, and the sampling parameters that they come to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from radixrt.errors import InvalidRequest
from radixrt.protocol.constraint import Constraint, with_constraint
from radixrt.protocol.sampling import SamplingParams, check
from radixrt.protocol.terms import ProgramTerms
from radixrt.protocol.terms import check as check_terms
from radixrt.server.errors import naming
from radixrt.text.utf8 import encode_utf8

_PARAMETERS = (
    "min_tokens",
    "n",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
    "logit_bias",
    "ignore_eos",
    "heal",
)
"""Fields that are named like the sampling parameter they set."""

_CONSTRAINTS = {
    "json_schema": "json_schema",
    "regex": "regex",
    "choices": "choices",
    "guided_json": "json_schema",
    "guided_regex": "regex",
    "guided_choice": "choices",
}
"""Fields that constrain, and the constraint's name among the sampling parameters."""

_NOT_YET = ("ebnf", "guided_grammar", "structural_tag")
"""Other servers' constraints that are not known here: to drop one in silence would break what a caller relies on."""


class StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class StructuredOutputs(msgspec.Struct):
    """vLLM's way to give a constraint."""

    json: dict[str, Any] | bool | str | None = None
    regex: str | None = None
    choice: list[str] | None = None
    json_object: bool | None = None
    grammar: Any = None
    structural_tag: Any = None


class TermsFields(Protocol):
    """What a request says of its place among others. `lora` and `lora_path` are there to be refused."""

    cache_salt: str | None
    """It shares cached prefixes only with requests of the same salt."""
    priority: int | None
    lora: Any
    lora_path: Any


def terms(fields: TermsFields, steps: int | None = None) -> ProgramTerms:
    """The terms of a request; raises `InvalidRequest`, naming the field."""
    for name in ("lora", "lora_path"):
        if getattr(fields, name) is not None:
            # Ignored, it would answer with another model's text.
            raise InvalidRequest(f"{name} is given, but adapters are not supported", field=name)
    if fields.cache_salt is not None:
        encode_utf8(fields.cache_salt, "cache_salt")
    given = ProgramTerms(cache_salt=fields.cache_salt, priority=fields.priority or 0, steps=steps)
    check_terms(given)
    return given


class SamplingFields(msgspec.Struct, kw_only=True):
    """OpenAI's sampling fields, and those that users of vLLM and SGLang add. A field that is null was not given."""

    min_tokens: int | None = None
    n: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: dict[int, float] | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    stop_regex: str | list[str] | None = None
    ignore_eos: bool | None = None
    heal: bool | None = None
    """Whether the last token of a prompt that ends with text is drawn anew."""

    json_schema: dict[str, Any] | bool | str | None = None
    regex: str | None = None
    choices: list[str] | None = None
    guided_json: dict[str, Any] | bool | str | None = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    structured_outputs: StructuredOutputs | None = None
    ebnf: Any = None
    guided_grammar: Any = None
    structural_tag: Any = None


class RequestFields(SamplingFields, kw_only=True):
    """Sampling fields and terms side by side, as in OpenAI's requests."""

    cache_salt: str | None = None
    priority: int | None = None
    lora: Any = None
    lora_path: Any = None


def check_heal(fields: SamplingFields, logprobs: object) -> None:
    """Raise `InvalidRequest` for what OpenAI's forms cannot tell: of a token that is half prompt and half output."""
    if fields.heal and logprobs:
        raise InvalidRequest("heal and logprobs do not go together here; in /generate they do", field="heal")


class Sampling(msgspec.Struct, frozen=True):
    """Checked parameters, and what their fields are called in the request."""

    params: SamplingParams
    names: Mapping[str, str]


def sampling(
    fields: SamplingFields,
    *,
    max_tokens: int,
    logprobs: int | None = None,
    logprob_start_len: int = -1,
    return_text_in_logprobs: bool = False,
    constraints: Mapping[str, tuple[str, Any]] | None = None,
    prefix: str = "",
    names: Mapping[str, str] | None = None,
) -> Sampling:
    """The sampling parameters of a request.

    `constraints` are those that a route knows besides: name of a field -> (name among the parameters, value). `prefix`
    is what stands before a field's name in the request; `names` are the fields of parameters that are called otherwise
    there. Raises `InvalidRequest`, naming the field.
    """
    values = {name: getattr(fields, name) for name in _PARAMETERS if getattr(fields, name) is not None}
    for name in ("stop", "stop_regex"):
        if (stops := getattr(fields, name)) is not None:
            values[name] = (stops,) if isinstance(stops, str) else tuple(stops)
    if fields.stop_token_ids is not None:
        values["stop_token_ids"] = tuple(fields.stop_token_ids)
    called = {name: prefix + name for name in SamplingParams.__struct_fields__} | dict(names or {})
    field, constraint = _constraint(fields, constraints or {}, prefix)
    if field is not None:
        called |= dict.fromkeys(("constraint", "json_schema", "json_object", "regex", "choices"), field)
    params = SamplingParams(
        **values,
        max_tokens=max_tokens,
        logprobs=logprobs,
        logprob_start_len=logprob_start_len,
        return_text_in_logprobs=return_text_in_logprobs,
        constraint=constraint,
    )
    with naming(called):
        check(params)
    return Sampling(params, called)


def _constraint(
    fields: SamplingFields, more: Mapping[str, tuple[str, Any]], prefix: str
) -> tuple[str | None, Constraint | None]:
    """The field that gives the request's one constraint, and the constraint."""
    for name in _NOT_YET:
        if getattr(fields, name) is not None:
            raise InvalidRequest(f"{name} is not supported; use json_schema, regex or choices", field=prefix + name)
    given = {
        prefix + name: (kind, getattr(fields, name))
        for name, kind in _CONSTRAINTS.items()
        if getattr(fields, name) is not None
    }
    given |= _structured_outputs(fields.structured_outputs, f"{prefix}structured_outputs")
    given |= more
    if len(given) > 1:
        both = " and ".join(given)
        raise InvalidRequest(f"{both} are given; a generation has one constraint", field=list(given)[1])
    for field, (kind, value) in given.items():
        try:
            return field, with_constraint({kind: value})["constraint"]
        except InvalidRequest as error:
            error.field = field
            raise
    return None, None


def _structured_outputs(given: StructuredOutputs | None, field: str) -> dict[str, tuple[str, Any]]:
    if given is None:
        return {}
    for name in ("grammar", "structural_tag"):
        if getattr(given, name) is not None:
            message = f"{field}.{name} is not supported; use json, regex or choice"
            raise InvalidRequest(message, field=f"{field}.{name}")
    kinds = {
        "json": ("json_schema", given.json),
        "regex": ("regex", given.regex),
        "choice": ("choices", given.choice),
        "json_object": ("json_object", given.json_object or None),
    }
    return {f"{field}.{name}": kind for name, kind in kinds.items() if kind[1] is not None}
