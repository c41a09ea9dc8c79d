"""What client and worker say to each other: msgpack-encoded tagged unions, no pickle.

A program is one run; its nodes form the request tree. A node continues its parent's context with its own segments and,
when it has sampling parameters, generates. A node may be sent before its parent has finished: the worker starts it
then, without a round trip.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from radixrt.protocol.events import Event
from radixrt.protocol.options import Options
from radixrt.protocol.origin import Origin
from radixrt.protocol.sampling import MAX_CHOICES, SamplingParams
from radixrt.protocol.segments import Segment
from radixrt.protocol.terms import NO_TERMS, ProgramTerms

PROTOCOL_VERSION = 1
MAX_MESSAGE_BYTES = 64 * 2**20


class TreeNode(msgspec.Struct, frozen=True, omit_defaults=True):
    """One node: it generates (`sampling`), is scored (`score`), or chooses among options (`select`).

    With none of them it is a stretch of prompt that several children share (a fork point).
    """

    id: int
    parent: int | None
    """A node of the same program, sent before or with this one. None: the node starts the context."""
    segments: tuple[Segment, ...]
    """Over ZMQ all are `Ids`: the frontend has tokenised them."""
    sampling: SamplingParams | None = None
    heals: bool = False
    """With `sampling`: the last of its own ids is text that somebody wrote, and is to be drawn anew (`sampling.heal`).
    Over ZMQ it is the frontend that says so."""
    score: int | None = None
    """The log-probabilities of its own ids are wanted, from this one on (0: all). It generates nothing."""
    select: Options | None = None
    """For the frontend only, which makes scored nodes of it."""
    origin: Origin | None = None
    """For backends on the program's side only."""

    @property
    def ends(self) -> int:
        """How many choices get an end: of a fork point none, of too many those that the worker refuses one by one."""
        if self.sampling is not None:
            return min(self.sampling.n, MAX_CHOICES)
        return int(self.score is not None or self.select is not None)


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """The client's first message; the worker answers `Welcome` when the model is loaded, or `Refused`."""

    version: int = PROTOCOL_VERSION


class SubmitTree(msgspec.Struct, frozen=True, tag="submit", omit_defaults=True):
    program: int
    nodes: tuple[TreeNode, ...]
    terms: ProgramTerms = NO_TERMS
    """Those of the message that opens the program count."""


class Abort(msgspec.Struct, frozen=True, tag="abort"):
    """Abort one node and all below it, or (`node` None) every live node of the program. Unknown ones: no effect."""

    program: int
    node: int | None = None


class CloseProgram(msgspec.Struct, frozen=True, tag="close"):
    """No more nodes will come: live ones are aborted, contexts forgotten (their KV stays cached)."""

    program: int


class FlushCache(msgspec.Struct, frozen=True, tag="flush"):
    """Forget every cached prefix that no running request holds. Answered by `Stats`."""


class GetStats(msgspec.Struct, frozen=True, tag="stats"):
    """Ask for `Stats`."""


ClientMessage: TypeAlias = Hello | SubmitTree | Abort | CloseProgram | FlushCache | GetStats


class Welcome(msgspec.Struct, frozen=True, tag="welcome"):
    """The worker is ready: what it runs and its limits."""

    version: int
    model: str
    device: str
    kernels: str
    dtype: str
    page_size: int
    pool_pages: int
    kv_bytes: int
    context_length: int
    """The most tokens, prompt and output together, that one request may have."""
    vocabulary_size: int


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """The worker cannot serve: it failed to load, or speaks another protocol version."""

    kind: str
    message: str
    field: str | None = None


class Events(msgspec.Struct, frozen=True, tag="events"):
    """What one step brought, for one client."""

    events: tuple[Event, ...]


class Stats(msgspec.Struct, frozen=True, tag="stats"):
    """Counters since start, and gauges of now. Page gauges add up: free + owned + tree == pool."""

    pages_free: int
    pages_owned: int
    pages_tree: int
    leases: int
    waiting: int
    running: int
    steps: int
    tokens_computed: int
    """Rows written to the KV pool; page copies do not count."""
    prompt_tokens: int
    cached_tokens: int
    """Prompt tokens served from the prefix tree, at a request's first admission only."""
    evicted_pages: int
    evictions: int
    preemptions: int
    page_copies: int
    aborts: dict[str, int]
    """Aborted requests by the state they were in: `blocked` (by an unfinished parent), `awaiting grammar`,
    `waiting`, `preempted`, `prefilling`, `decoding` or `holding back` (text that may become a stop string)."""
    dropped_frames: int


WorkerMessage: TypeAlias = Welcome | Refused | Events | Stats
