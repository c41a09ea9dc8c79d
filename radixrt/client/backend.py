"""What the DSL needs of a runtime: a line for each program, and the words the chat template puts around turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from radixrt.protocol.events import TextEvent
from radixrt.protocol.messages import TreeNode
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


class Backend(Protocol):
    """Where programs run."""

    def open_program(self, on_event: Callable[[TextEvent], None], terms: ProgramTerms = NO_TERMS) -> Session:
        """Open a program. `on_event` is called on the event loop's thread: pieces, then one end a choice.

        Raises `InvalidRequest` for wrong terms.
        """
        ...

    def role_text(self, previous: Sequence[str], role: str, edge: Literal["begin", "end"]) -> str:
        """What the chat template writes at this edge of a turn that follows turns of the `previous` roles.

        Raises `InvalidRequest` for a role that the template refuses.
        """
        ...
