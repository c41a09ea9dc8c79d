"""Reuse of whole blocks by their hashes, as in vLLM's prefix caching, on the same tree.

vLLM knows a block of 16 tokens by a hash over it and all before it, and reuses whole blocks only. Here each such block
gets a number of its own, and 16 ids of its own: two sequences then share as many of these ids as they share whole
blocks. What is left is to cut a match to whole pages (a prompt that is cached to its end computes its last block
again), and to keep the last, part-full block of a sequence out of the tree. One difference remains: a waiting request
whose blocks are being computed waits for them, as it does with the radix tree.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from radixrt.cache.lease import Lease
from radixrt.cache.namespace import Namespace
from radixrt.cache.prefix_cache import PrefixCache
from radixrt.protocol.ids import IdArray

BLOCK = 16
"""Tokens a block."""


class BlockIds:
    """Gives blocks their numbers. Injective up to 2^31 / 16 blocks."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, bytes], int] = {}
        self._tails = 0

    def translate(self, ids: IdArray) -> IdArray:
        """int32 [tokens]: equal to another translation as far as whole blocks are equal, and no further."""
        whole, rest = divmod(len(ids), BLOCK)
        numbers = np.empty(whole + (rest > 0), dtype=np.int32)
        data, step = ids.tobytes(), BLOCK * ids.itemsize
        parent = -1
        for block in range(whole):
            key = (parent, data[block * step : (block + 1) * step])
            parent = self._numbers.setdefault(key, len(self._numbers))
            numbers[block] = parent
        if rest:
            self._tails += 1
            numbers[whole] = -self._tails
        translated = (numbers[:, None] * np.int32(BLOCK) + np.arange(BLOCK, dtype=np.int32)).reshape(-1)
        return translated[: len(ids)].astype(np.int32, copy=False)


class BlockLease(Lease):
    """Neither copies from a part-matched page nor leaves a part-full one."""

    __slots__ = ()

    def extend(self, ids: IdArray, pages: NDArray[np.int32]) -> NDArray[np.int32]:
        whole = len(ids) // BLOCK
        held = super().extend(ids[: whole * BLOCK], pages[:whole])
        self._tree.pool.give_back(pages[whole:])
        return held


class BlockCache(PrefixCache):
    """A prefix cache whose matches are whole pages. Its counters of lookups and hits stay at zero."""

    def match_length(self, namespace: Namespace, ids: IdArray) -> int:
        return super().match_length(namespace, ids) // self.page_size * self.page_size

    def acquire(self, namespace: Namespace, ids: IdArray) -> Lease:
        lease = BlockLease(self._tree, self._tree.root(namespace), ids.tobytes())
        lease.settle()
        return lease
