"""Holding scripted replies against what was asked, as no model could give them otherwise."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Mapping, Sequence

from radixrt.client.scripted.replies import Answer, Reply, Request
from radixrt.errors import RadixError, ScriptMismatch
from radixrt.protocol.constraint import Choice, Constraint, JsonObject, JsonSchema, Regex
from radixrt.protocol.sampling import SamplingParams
from radixrt.text.stops import StopMatcher

_CHOSEN, _OTHERS = 0.0, -10.0
"""The log-probabilities of each character of a scripted choice, and of what was not chosen."""


def checked_texts(answer: Answer, request: Request, sampling: SamplingParams) -> Sequence[Reply]:
    """The `n` replies of a `gen`. Raises `ScriptMismatch` for what a model could not have said there."""
    if isinstance(answer, Mapping):
        raise ScriptMismatch(f"a gen is asked for, and the script has scores of options: {answer!r}")
    if isinstance(answer, RadixError):
        answer = (answer,) * sampling.n
    texts = answer if isinstance(answer, tuple) else (answer,)
    if len(texts) != sampling.n:
        raise ScriptMismatch(f"the gen has n={sampling.n}, and the script {len(texts)}; give a tuple of {sampling.n}")
    replies = [_as_reply(text) for text in texts]
    for reply in replies:
        _check_prompt(reply, request.prompt)
        if reply.error is None:
            _check_text(reply, sampling)
    return replies


def checked_scores(answer: Answer, request: Request) -> Sequence[Sequence[float]]:
    """Of a `select`, the log-probabilities of each option's characters.

    Raises the error that the script has, and `ScriptMismatch` for what is none of the options.
    """
    if isinstance(answer, Mapping):
        if set(answer) != set(request.choices):
            raise ScriptMismatch(f"the script has scores for {list(answer)}, and the options are {request.choices}")
        return [_by_character(option, answer[option]) for option in request.choices]
    if isinstance(answer, tuple):
        raise ScriptMismatch(f"a select is asked for, and the script has several texts: {answer!r}")
    reply = _as_reply(answer)
    _check_prompt(reply, request.prompt)
    if reply.error is not None:
        raise reply.error
    chosen = "".join(reply.pieces)
    if chosen not in request.choices:
        raise ScriptMismatch(f"the script has {chosen!r}, which is none of the options {request.choices}")
    return [[_CHOSEN if option == chosen else _OTHERS] * len(option) for option in request.choices]


def _by_character(option: str, scores: float | Sequence[float]) -> Sequence[float]:
    if isinstance(scores, int | float):
        return [scores] * len(option)
    if len(scores) != len(option):
        raise ScriptMismatch(f"the script has {len(scores)} scores for the {len(option)} characters of {option!r}")
    return scores


def _as_reply(text: str | Reply | RadixError) -> Reply:
    if isinstance(text, Reply):
        return text
    return Reply((), error=text) if isinstance(text, RadixError) else Reply(text)


def _check_prompt(reply: Reply, prompt: str) -> None:
    if reply.behind is not None and not prompt.endswith(reply.behind):
        end = prompt[-len(reply.behind) - 20 :]
        raise ScriptMismatch(
            f"the reply is for a prompt that ends with {reply.behind!r}, and this one ends with {end!r}"
        )


def _check_text(reply: Reply, sampling: SamplingParams) -> None:
    text = "".join(reply.pieces)
    for stop in sampling.stop:
        if stop in text:
            raise ScriptMismatch(f"the reply {text!r} has the stop string {stop!r}; a model's text ends before it")
    matcher = StopMatcher(patterns=sampling.stop_regex)
    match = matcher.feed(text.encode()).match or matcher.finish().match
    if match is not None:
        raise ScriptMismatch(f"the reply {text!r} has {match.stop!r}, which a stop_regex matches")
    if sampling.constraint is not None and reply.reason != "length":
        _check_constraint(text, sampling.constraint)


def _check_constraint(text: str, constraint: Constraint) -> None:
    match constraint:
        case Regex(pattern=pattern):
            if re.fullmatch(pattern, text) is None:
                raise ScriptMismatch(f"the reply {text!r} does not match the regex {pattern!r}")
        case Choice(options=options):
            if text not in options:
                raise ScriptMismatch(f"the reply {text!r} is none of the choices {options}")
        case JsonObject():
            if not isinstance(_parsed(text), dict):
                raise ScriptMismatch(f"the reply {text!r} is no JSON object")
        case JsonSchema(schema=schema):
            problem = _validator(schema)(_parsed(text))
            if problem is not None:
                raise ScriptMismatch(f"the schema does not accept the reply {text!r}: {problem}")


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ScriptMismatch(f"the reply {text!r} is no JSON: {error}") from None


@functools.lru_cache(maxsize=64)
def _validator(schema: str) -> Callable[[object], str | None]:
    """What is wrong with a value. Without the package `jsonschema` nothing is, as long as it is JSON."""
    try:
        import jsonschema
    except ImportError:
        return lambda value: None
    validator = jsonschema.Draft202012Validator(json.loads(schema))

    def problem(value: object) -> str | None:
        error = next(validator.iter_errors(value), None)
        return None if error is None else f"{error.json_path}: {error.message}"

    return problem
