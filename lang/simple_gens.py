"""`gen_int` and `gen_string`: SGLang's words for a `gen` with a `dtype`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

from radixrt.lang.expressions import Gen, Select, gen
from radixrt.lang.options import SamplingOptions


def gen_int(
    name: str | None = None,
    max_tokens: int | None = None,
    n: int | None = None,
    stop: str | Sequence[str] | None = None,
    stop_token_ids: Sequence[int] | None = None,
    **options: Unpack[SamplingOptions],
) -> Gen[Any] | Select:
    """`gen(name, ..., dtype=int)`: the digits of a whole number, as text."""
    return gen(name, max_tokens, n=n, stop=stop, stop_token_ids=stop_token_ids, dtype=int, **options)


def gen_string(
    name: str | None = None,
    max_tokens: int | None = None,
    n: int | None = None,
    stop: str | Sequence[str] | None = None,
    stop_token_ids: Sequence[int] | None = None,
    **options: Unpack[SamplingOptions],
) -> Gen[Any] | Select:
    """`gen(name, ..., dtype=str)`: words in double quotes, the quotes included."""
    return gen(name, max_tokens, n=n, stop=stop, stop_token_ids=stop_token_ids, dtype=str, **options)
