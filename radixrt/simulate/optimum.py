"""The most that reuse can do: every token of a prefix that was seen before, with a cache that never forgets."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from radixrt.cache.prefix_cache import PrefixCache
from radixrt.simulate.trace import Trace

_PAGE = 64
"""Matches are exact to the token at any page size; large pages make a small tree."""


def reusable_tokens(trace: Trace, on_progress: Callable[[int], None] = lambda counted: None) -> int:
    """Prompt tokens that an infinite cache would serve, the requests taken one after another as they stand.

    A prompt's last token is always computed, and the last generated one never is. `on_progress` is told, now and then,
    how many requests have been counted.
    """
    pages = sum(request.tokens // _PAGE + 2 for request in trace)
    cache = PrefixCache(max(pages, 1), _PAGE)
    found = 0
    for counted, request in enumerate(trace, 1):
        prompt = request.prompt.ids()
        fed = np.concatenate([prompt, request.output[:-1]])
        lease = cache.acquire(request.namespace, fed)
        matched = lease.length + (lease.partial.slots if lease.partial is not None else 0)
        found += min(matched, len(prompt) - 1)
        lease.settle()
        fresh = fed[lease.length :]
        taken = cache.allocate(-(-len(fresh) // _PAGE))
        assert taken is not None  # There are pages for everything.
        lease.extend(fresh, taken)
        lease.release()
        if counted % 100 == 0 or counted == len(trace):
            on_progress(counted)
    return found
