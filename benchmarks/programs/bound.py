"""What no worker can do without: counted from the fed tokens alone, knowing nothing of trees, pages or policies.

A worker has to compute each distinct (prefix, token) pair once. Where all of a prompt has been computed for others, it
still has to compute the prompt's last token, or (of a select's options) the last token before the scored ones, for its
logits. Offline, that is all: in depth-first order whatever a request shares with any earlier one it shares with the
one just before it, so that a cache which holds the last request's path and, clairvoyant, keeps of it what the next one
continues, computes nothing twice (SGLang, theorem 3.1). It takes a pool that holds the longest request.

So this is a lower bound for every schedule. It may be out of reach: depth-first order ignores that a run's next prompt
is not known before its last answer, and that several runs share the pool.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.programs.recording import Fed, RecordedRun


@dataclass(frozen=True)
class Bound:
    """Of all runs of a shape."""

    pairs: int
    """Distinct (prefix, token) pairs that were fed."""
    wholly_cached: int
    """Requests all of whose prompt another one feeds too, in the order that makes them fewest."""
    pages: int
    """Pages that hold all distinct prefixes: the working set."""
    longest: int
    """Tokens of the longest request."""
    fed: int
    """Rows without any reuse."""

    @property
    def rows(self) -> int:
        """Rows that have to be computed."""
        return self.pairs + self.wholly_cached


def bound_of(runs: Sequence[RecordedRun], page_size: int) -> Bound:
    """Count the tokens of all requests in one trie."""
    requests = [fed for run in runs for fed in run.fed]
    nodes: dict[tuple[int, int], int] = {}
    pages: set[int] = set()
    for fed in requests:
        node = 0
        for length, token in enumerate(fed.ids, 1):
            node = nodes.setdefault((node, token), len(nodes) + 1)
            if length % page_size == 0 or length == len(fed.ids):
                pages.add(node)
    return Bound(
        pairs=len(nodes),
        wholly_cached=_wholly_cached(requests),
        pages=len(pages),
        longest=max(len(fed.ids) for fed in requests),
        fed=sum(len(fed.ids) for fed in requests),
    )


def depth_first_rows(runs: Sequence[RecordedRun]) -> int:
    """Rows that a cache of one path computes in depth-first order; equal to `Bound.rows`, by another way."""
    # The order of the tokens is a depth-first order.
    rows, last = 0, Fed([], 0)
    for fed in sorted((fed for run in runs for fed in run.fed), key=lambda fed: fed.ids):
        rows += len(fed.ids) - min(_common(last.ids, fed.ids), fed.prompt - 1)
        last = fed
    return rows


def _wholly_cached(requests: Sequence[Fed]) -> int:
    """Requests whose prompt is fed by one before them in depth-first order."""
    found, last = 0, Fed([], 0)
    for fed in sorted(requests, key=lambda fed: fed.ids):
        found += _common(last.ids, fed.ids) >= fed.prompt
        last = fed
    return found


def _common(left: list[int], right: list[int]) -> int:
    """Tokens with which both begin."""
    shorter = min(len(left), len(right))
    if left[:shorter] == right[:shorter]:
        return shorter
    return next(i for i in range(shorter) if left[i] != right[i])
