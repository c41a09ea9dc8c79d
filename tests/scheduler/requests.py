"""Requests for tests that need no engine."""

from __future__ import annotations

from collections.abc import Sequence

from radixrt.cache.namespace import Namespace
from radixrt.protocol.ids import as_ids
from radixrt.protocol.sampling import SamplingParams
from radixrt.scheduler.request import Origin, Request, TokenBuffer


def make(
    arrival: int,
    prompt: Sequence[int] = (1, 2, 3),
    *,
    namespace: Namespace = (),
    siblings: int | None = None,
    priority: int = 0,
    work_left: int = 1,
) -> Request:
    """A waiting request whose id is its arrival."""
    return Request(
        id=arrival,
        tokens=TokenBuffer(as_ids(prompt)),
        prompt_length=len(prompt),
        token_limit=1000,
        params=SamplingParams(max_tokens=100),
        seed=0,
        choice=0,
        end_ids=as_ids([]),
        origin=Origin(namespace, siblings, priority, work_left),
        arrival=arrival,
    )
