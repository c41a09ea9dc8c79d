"""What the DSL needs of a runtime: a line for each program, and the words the chat template puts around turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from radixrt.protocol.constraint import CONSTRAINT_NAMES
from radixrt.protocol.events import TextEvent
from radixrt.protocol.messages import Stats, TreeNode
from radixrt.protocol.sampling import SamplingParams
from radixrt.protocol.terms import NO_TERMS, ProgramTerms


class Session(Protocol):
    """One program's line to a runtime. Every method is called on the event loop's thread (`client.loop`)."""

    def submit(self, nodes: Sequence[TreeNode]) -> None:
        """Send nodes, parents first. Whatever is wrong with one comes back as its `Failed` event."""
        ...

    def abort(self, node: int | None = None) -> None:
        """Abort a node and all below it, or every live node. Each aborted choice still gets its `Failed` event."""
        ...

    def choose(self, node: int, option: int) -> None:
        """Let what continues a select, whose `Scores` have come, go on with one of its options.

        Raises `InvalidRequest` for a node that has nothing to choose from, or not that option.
        """
        ...

    def close(self) -> None:
        """No more nodes will come; live ones are aborted. No event follows."""
        ...


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a backend can do. A program that asks for more is refused where it appends the expression (`lang.demands`).

    The defaults are all that a program may ask for.
    """

    options: frozenset[str] = frozenset(SamplingParams.__struct_fields__) - {"constraint"}
    """The sampling parameters that it honours when they differ from their defaults."""
    constraints: frozenset[str] = frozenset(CONSTRAINT_NAMES)
    """The constraints that it enforces, by the names that users give them."""
    select: bool = True
    """Whether it scores options."""
    raw: bool = True
    """Whether it takes rendered prompts."""
    roles: frozenset[str] | None = None
    """The roles that its turns may have. None: whatever the chat template says."""
    only_in_turns: bool = False
    """Whether it takes text in turns only, and generates in those of the assistant, as chat APIs do."""
    continues_turns: bool = True
    """Whether it goes on with a turn that has text already."""
    heals: bool = False
    """Whether it heals prompts of programs (`SamplingParams.heal`) where neither a gen nor its run says anything."""
    caches_prefixes: bool = False
    """Whether a prefix that was computed once is free afterwards, so that it pays to compute it before it is needed."""


EVERYTHING = Capabilities()
RUNTIME = Capabilities(caches_prefixes=True)
"""What a runtime of ours can do, embedded or behind a server..."""
HEALING_RUNTIME = Capabilities(caches_prefixes=True, heals=True)
"""...and one that was made to heal."""


class Backend(Protocol):
    """Where programs run."""

    @property
    def name(self) -> str:
        """What messages call it."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """What it can do; does not change."""
        ...

    def open_program(self, on_event: Callable[[TextEvent], None], terms: ProgramTerms = NO_TERMS) -> Session:
        """Open a program. `on_event` is called on the event loop's thread: pieces, then one end a choice.

        Raises `InvalidRequest` for wrong terms.
        """
        ...

    def role_text(self, previous: Sequence[str], role: str, edge: Literal["begin", "end"]) -> str | Callable[[], str]:
        """What the chat template writes at this edge of a turn that follows turns of the `previous` roles.

        Or, where a server has to be asked for it, what to call for it when somebody reads the text. Both raise
        `InvalidRequest` for a role that the template refuses.
        """
        ...


@runtime_checkable
class Administered(Protocol):
    """A backend whose cache is ours to empty, and that tells what it does."""

    def flush_cache(self) -> Stats:
        """Forget every cached prefix that is not in use; the counters afterwards."""
        ...

    def get_server_info(self) -> dict[str, Any]:
        """What runs there, and its counters."""
        ...
