"""How the next token is chosen, and when a generation ends."""

from __future__ import annotations

import math

import msgspec

from radixrt.errors import InvalidRequest
from radixrt.protocol.constraint import Constraint, field_of, texts_of

MAX_CHOICES = 128
MAX_TOP_LOGPROBS = 20
MAX_STOP_STRINGS = 64
MAX_STOP_CHARACTERS = 4096
"""Of all stop strings together: what looks for them takes some hundred bytes a character."""
MAX_STOP_PATTERNS = 16
MAX_STOP_PATTERN_LENGTH = 1024
_NO_TOKEN = 2**31
"""Ids are int32."""
_MOST = 2**63 - 1
"""Larger numbers cannot be sent to a worker."""


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One generation's parameters; `check` says whether they make sense.

    Filters apply in this order: penalties, `logit_bias`, `temperature`, `top_k`, `top_p`, `min_p`. Log-probabilities
    are those of the model's own logits, before any of them.
    """

    max_tokens: int = 128
    min_tokens: int = 0
    """No end of turn, stop id, stop string or stop pattern ends the generation before this many tokens; strings and
    patterns are looked for in what follows the first min_tokens - 1."""
    n: int = 1
    """Independent choices for one prompt: a fork of the request. Choice `i` draws its own noise."""
    temperature: float = 1.0
    """0 is greedy: the most likely token, the lowest id among equals."""
    top_p: float = 1.0
    top_k: int = -1
    """-1 or 0: no limit."""
    min_p: float = 0.0
    seed: int | None = None
    """Sampling noise is a pure function of (seed, choice, position). None: a fresh seed each request."""
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    """Divides positive and multiplies negative logits of tokens in prompt or output (CTRL, section 4.1). 1: off."""
    logit_bias: dict[int, float] = {}
    stop: tuple[str, ...] = ()
    """The text is cut before the earliest match in what was generated; of matches that start together, the longest."""
    stop_token_ids: tuple[int, ...] = ()
    stop_regex: tuple[str, ...] = ()
    """Patterns, in Python's syntax: the text is cut before the first match in what was generated, as soon as it is one.
    What may still become a match is held back. Lookaround, backreferences and anchors are not supported."""
    ignore_eos: bool = False
    constraint: Constraint | None = None
    """What the text may be; users give it as `json_schema`, `json_object`, `regex` or `choices`."""
    heal: bool = False
    """Token healing: if the prompt ends with text that was written, its last token is drawn anew, among the tokens that
    begin with its text. So "http:" can go on with "://", which is a token of its own. The text is the same prompt, then
    what is generated; tokens that were generated and special ones are never drawn anew, and nothing behind a fork is.
    The token that is drawn anew counts for neither `max_tokens` nor `min_tokens`."""
    logprobs: int | None = None
    """None: not reported. k: each token's own log-probability and those of the k likeliest tokens."""
    logprob_start_len: int = -1
    """p: those of the prompt's own tokens from position p on are reported too, computed once for all `n`
    choices. As logits are not cached, at most p - 1 of the prompt's tokens then come from the cache. -1: none are."""
    return_text_in_logprobs: bool = False
    """Whether the texts of tokens are told wherever log-probabilities are."""


def check(params: SamplingParams) -> None:
    """Raise `InvalidRequest`, naming the field, unless every parameter lies in its range."""
    p = params
    _at_least("max_tokens", p.max_tokens, 1)
    _at_least("min_tokens", p.min_tokens, 0)
    if p.min_tokens > p.max_tokens:
        raise InvalidRequest(f"min_tokens is {p.min_tokens}, more than max_tokens ({p.max_tokens})", field="min_tokens")
    _between("n", p.n, 1, MAX_CHOICES)
    _between("temperature", p.temperature, 0.0, 1e6)
    _between("top_p", p.top_p, 0.0, 1.0)
    if p.top_p == 0.0:
        raise InvalidRequest("top_p is 0; it must be more than 0 and at most 1", field="top_p")
    _at_least("top_k", p.top_k, -1)
    _between("min_p", p.min_p, 0.0, 1.0)
    if p.seed is not None:
        _between("seed", p.seed, -(2**63), 2**63 - 1)
    _between("frequency_penalty", p.frequency_penalty, -2.0, 2.0)
    _between("presence_penalty", p.presence_penalty, -2.0, 2.0)
    _between("repetition_penalty", p.repetition_penalty, 1e-3, 1e3)
    for name, tokens in (("logit_bias", p.logit_bias), ("stop_token_ids", p.stop_token_ids)):
        for token in tokens:
            if not 0 <= token < _NO_TOKEN:
                raise InvalidRequest(f"{name} names token {token}, which no vocabulary has", field=name)
    for token, bias in p.logit_bias.items():
        _between(f"logit_bias.{token}", bias, -100.0, 100.0)
    _check_stops(p.stop)
    _check_stop_patterns(p.stop_regex)
    if p.constraint is not None:
        for text in texts_of(p.constraint):
            _unicode(field_of(p.constraint), text)
    if p.logprobs is not None:
        _between("logprobs", p.logprobs, 0, MAX_TOP_LOGPROBS)
    _at_least("logprob_start_len", p.logprob_start_len, -1)


def check_tokens(params: SamplingParams, vocabulary_size: int) -> None:
    """Raise `InvalidRequest` for a token id in `logit_bias` or `stop_token_ids` that the vocabulary lacks."""
    for field, ids in (("logit_bias", params.logit_bias), ("stop_token_ids", params.stop_token_ids)):
        for token in ids:
            if not 0 <= token < vocabulary_size:
                raise InvalidRequest(
                    f"{field} names token {token}; ids run from 0 to {vocabulary_size - 1}", field=field
                )


def _check_stops(stops: tuple[str, ...]) -> None:
    if len(stops) > MAX_STOP_STRINGS:
        raise InvalidRequest(f"stop has {len(stops)} strings; at most {MAX_STOP_STRINGS} are allowed", field="stop")
    for i, text in enumerate(stops):
        if not text:
            raise InvalidRequest(f"stop[{i}] is empty", field=f"stop[{i}]")
        _unicode(f"stop[{i}]", text)
    characters = sum(map(len, stops))
    if characters > MAX_STOP_CHARACTERS:
        raise InvalidRequest(
            f"stop has {characters} characters in all; at most {MAX_STOP_CHARACTERS} are allowed", field="stop"
        )


def _check_stop_patterns(patterns: tuple[str, ...]) -> None:
    if len(patterns) > MAX_STOP_PATTERNS:
        raise InvalidRequest(
            f"stop_regex has {len(patterns)} patterns; at most {MAX_STOP_PATTERNS} are allowed", field="stop_regex"
        )
    for i, pattern in enumerate(patterns):
        if not 0 < len(pattern) <= MAX_STOP_PATTERN_LENGTH:
            raise InvalidRequest(
                f"stop_regex[{i}] has {len(pattern)} characters; a pattern has 1 to {MAX_STOP_PATTERN_LENGTH}",
                field=f"stop_regex[{i}]",
            )
        _unicode(f"stop_regex[{i}]", pattern)


def _between(field: str, value: float, low: float, high: float) -> None:
    if not math.isfinite(value) or not low <= value <= high:
        raise InvalidRequest(f"{field} is {value}; it must be from {low:g} to {high:g}", field=field)


def _at_least(field: str, value: int, low: int) -> None:
    if value < low:
        raise InvalidRequest(f"{field} is {value}; it must be at least {low}", field=field)
    if value > _MOST:
        raise InvalidRequest(f"{field} is {value}; it must be at most {_MOST}", field=field)


def _unicode(field: str, text: str) -> None:
    """Half a surrogate pair can be sent to no worker."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"{field} is no Unicode text: {error}", field=field) from None
