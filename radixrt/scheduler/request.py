"""A request and its states. Each state owns its resources: only a running request holds pages, and it holds them here.

Waiting --admit--> Running --end--> Ended
   ^                  |
   +-----preempt------+
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from radixrt.cache.lease import Lease
from radixrt.cache.namespace import Namespace
from radixrt.protocol.ids import IdArray
from radixrt.protocol.sampling import SamplingParams


class TokenBuffer:
    """Token ids that grow at the end, without copying what is there at every token."""

    __slots__ = ("_ids", "last", "length")

    def __init__(self, ids: IdArray) -> None:
        self._ids = np.array(ids, dtype=np.int32)
        self.length = len(ids)
        """As `len` says; read several times a row and step, and an attribute takes a fifth of a call."""
        self.last = int(ids[-1]) if len(ids) else -1
        """The last id: the one that a decode row computes."""

    def __len__(self) -> int:
        return self.length

    def append(self, token: int) -> None:
        if self.length == len(self._ids):
            self._grow(1)
        self._ids[self.length] = self.last = token
        self.length += 1

    def extend(self, ids: IdArray) -> None:
        """Append several, at least one."""
        end = self.length + len(ids)
        if end > len(self._ids):
            self._grow(len(ids))
        self._ids[self.length : end] = ids
        self.last = int(ids[-1])
        self.length = end

    def view(self, start: int = 0, end: int | None = None) -> IdArray:
        """The ids `start:end`, not copied; do not write to it."""
        return self._ids[start : self.length if end is None else min(end, self.length)]

    def _grow(self, least: int) -> None:
        self._ids = np.concatenate([self._ids, np.zeros(max(64, self.length // 2, least), dtype=np.int32)])


@dataclass(slots=True)
class Waiting:
    """In the queue; owns nothing."""

    preempted: bool = False


class Running:
    """In the batch. Its page table is the leased pages, which the tree owns, then its own."""

    __slots__ = (
        "_page_size",
        "awaited",
        "computed",
        "copy_pending",
        "in_flight",
        "lease",
        "own_pages",
        "pages",
        "room",
        "stale",
        "tokens_in_flight",
    )

    def __init__(self, lease: Lease, page_size: int) -> None:
        self._page_size = page_size
        self.lease = lease
        self.computed = lease.length
        """Tokens whose keys and values are known to be in the pages."""
        self.in_flight = 0
        """Rows in plans whose results have not been applied..."""
        self.tokens_in_flight = 0
        """...and their tokens."""
        self.stale = False
        """A row in flight was planned for one more token than before, and it was not one: nothing more is planned
        until that row has come back."""
        self.copy_pending = False
        """The lease's partial page is still to be copied into the first own page."""
        self.awaited = False
        """A waiting request shares a prefix that this one is computing."""
        self.hold(np.empty(0, dtype=np.int32))

    @property
    def planned(self) -> int:
        """Tokens that are computed, or are being computed by plans in flight: the next row begins at this position."""
        return self.computed + self.tokens_in_flight

    def hold(self, own_pages: NDArray[np.int32]) -> None:
        """From now on these are its own pages; also to be called when the lease has changed."""
        self.own_pages = own_pages
        self.pages = np.concatenate([self.lease.pages, own_pages])
        """The page table, int32 [pages]: kept, since it changes once a page and is read at every step."""
        self.room = len(self.pages) * self._page_size
        """Tokens for which there are pages."""


@dataclass(frozen=True, slots=True)
class Ended:
    """Finished, failed or aborted; owns nothing."""


State: TypeAlias = Waiting | Running | Ended


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a request comes from, as far as its turn and its cache depend on it."""

    namespace: Namespace = ()
    siblings: int | None = None
    """A number that the branches of one fork share, and the choices of one prompt: they enter the batch together."""
    priority: int = 0
    """For the schedule policy `priority`: the highest goes first."""
    work_left: int = 1
    """For the schedule policy `program`: generations that its program has still to make, this one included."""


@dataclass(slots=True, eq=False)
class Request:
    """One generation, the scoring of a prompt, or both. `tokens` is the prompt, then what was generated: a preempted
    request loses none of it."""

    id: int
    tokens: TokenBuffer
    prompt_length: int
    token_limit: int
    """Most tokens, prompt and output together."""
    params: SamplingParams
    seed: int
    choice: int
    end_ids: IdArray
    """Token ids that end the generation."""
    origin: Origin
    arrival: int = 0
    """Set by the scheduler: the order in which requests came."""
    generates: bool = True
    """Whether it goes on when its prompt is computed."""
    unscored: int | None = None
    """The first position of the prompt whose token's log-probability is still wanted. None: none (any more)."""
    cached_tokens: int | None = None
    """Prompt tokens found in the tree at the first admission; a later one, after preemption, is no prefix hit."""
    state: State = field(default_factory=Waiting)

    @property
    def namespace(self) -> Namespace:
        return self.origin.namespace

    @property
    def siblings(self) -> int | None:
        return self.origin.siblings

    @property
    def generated(self) -> int:
        return len(self.tokens) - self.prompt_length

    @property
    def reusable(self) -> int:
        """How many of its first tokens may come from the cache: those after them give the logits that are wanted."""
        # The logits that score a token are those of the token before it.
        wanted = len(self.tokens) if self.unscored is None else self.unscored
        return max(wanted - 1, 0)

    @property
    def state_name(self) -> str:
        """`waiting`, `preempted`, `prefilling`, `decoding` or `ended`."""
        match self.state:
            case Waiting(preempted=preempted):
                return "preempted" if preempted else "waiting"
            case Running():
                return "prefilling" if self.state.computed < self.prompt_length else "decoding"
            case Ended():
                return "ended"

    @property
    def may_run_ahead(self) -> bool:
        """Whether a row may be planned for a token that is still being sampled: nothing but its position must count."""
        params = self.params
        return (
            params.constraint is None
            and params.repetition_penalty == 1.0
            and params.frequency_penalty == 0.0
            and params.presence_penalty == 0.0
            and len(self.tokens) + 1 < self.token_limit
        )

    def running(self) -> Running:
        """The running state; a request in any other state is a fault of the caller."""
        if not isinstance(self.state, Running):
            raise RuntimeError(f"request {self.id} is {type(self.state).__name__.lower()}, not running")
        return self.state
