"""`gen_int` and `gen_string`: SGLang's words for a `gen` with a `dtype`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict, Unpack

from radixrt.lang.expressions import Gen, Select, gen


class SimpleOptions(TypedDict, total=False):
    """Those of `gen`'s parameters that go with a `dtype`."""

    stop_token_ids: Sequence[int] | None
    temperature: float | None
    top_p: float | None
    top_k: int | None
    min_p: float | None
    frequency_penalty: float | None
    presence_penalty: float | None
    ignore_eos: bool | None
    return_logprob: bool | None
    top_logprobs_num: int | None
    repetition_penalty: float | None
    logit_bias: Mapping[int, float] | None
    seed: int | None
    logprobs: int | None


def gen_int(
    name: str | None = None,
    max_tokens: int | None = None,
    n: int | None = None,
    stop: str | Sequence[str] | None = None,
    **options: Unpack[SimpleOptions],
) -> Gen | Select:
    """`gen(name, ..., dtype=int)`: the digits of a whole number, as text."""
    return gen(name, max_tokens, n=n, stop=stop, dtype=int, **options)


def gen_string(
    name: str | None = None,
    max_tokens: int | None = None,
    n: int | None = None,
    stop: str | Sequence[str] | None = None,
    **options: Unpack[SimpleOptions],
) -> Gen | Select:
    """`gen(name, ..., dtype=str)`: words in double quotes, the quotes included."""
    return gen(name, max_tokens, n=n, stop=stop, dtype=str, **options)
