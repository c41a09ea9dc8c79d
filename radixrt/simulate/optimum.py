"""The most that reuse can do: every token of a prefix that was seen before, with a cache that never forgets."""

from __future__ import annotations

import numpy as np

from radixrt.cache.prefix_cache import PrefixCache
from radixrt.simulate.trace import Trace

_PAGE = 64
"""Matches are exact to the token at any page size; large pages make a small tree."""


def reusable_tokens(trace: Trace) -> int:
    """Prompt tokens that an infinite cache would serve, the requests taken one after another as they stand.

    A prompt's last token is always computed, and the last generated one never is.
    """
    pages = sum(request.tokens // _PAGE + 2 for request in trace)
    cache = PrefixCache(max(pages, 1), _PAGE)
    found = 0
    for request in trace:
        prompt = request.prompt.ids()
        found += cache.match_length(request.namespace, prompt[:-1])
        fed = np.concatenate([prompt, request.output[:-1]])
        lease = cache.acquire(request.namespace, fed)
        lease.settle()
        fresh = fed[lease.length :]
        taken = cache.allocate(-(-len(fresh) // _PAGE))
        assert taken is not None  # There are pages for everything.
        lease.extend(fresh, taken)
        lease.release()
    return found
