"""The request trees of open programs: what was submitted, what continues what, and how far each node is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from radixrt.cache.namespace import Namespace, namespace
from radixrt.errors import InvalidRequest, RadixError
from radixrt.protocol.ids import IdArray, unpack_ids
from radixrt.protocol.messages import TreeNode
from radixrt.protocol.segments import Ids
from radixrt.protocol.terms import ProgramTerms

_NO_IDS = np.empty(0, dtype=np.int32)


@dataclass(eq=False)
class Program:
    """One client's program, open until that closes it."""

    client: bytes
    id: int
    terms: ProgramTerms
    nodes: dict[int, Node] = field(default_factory=dict)
    generations: int = 0
    """Started so far, the choices of a node as one."""

    @property
    def namespace(self) -> Namespace:
        return namespace(cache_salt=self.terms.cache_salt)

    @property
    def work_left(self) -> int:
        """Generations still to come: at least the one that is about to start."""
        return max((self.terms.steps or 1) - self.generations, 1)


@dataclass(eq=False)
class Node:
    """A node that was submitted. It is open until its choices have ended."""

    spec: TreeNode
    program: Program
    number: int
    """Of all nodes of all programs."""
    parent: Node | None
    children: list[Node] = field(default_factory=list)
    open_choices: set[int] = field(default_factory=set)
    """Choices whose end has not been told."""
    requests: dict[int, int] = field(default_factory=dict)
    """Live requests: id -> choice."""
    context: IdArray = field(default_factory=lambda: _NO_IDS)
    """What children continue, once the node is complete. Before that, while it generates: its prompt."""
    complete: bool = False
    error: RadixError | None = None

    @property
    def failed(self) -> bool:
        return self.error is not None

    @property
    def siblings(self) -> int | None:
        """A number for all that may enter the batch together with it: its parent's other children, its choices."""
        if self.parent is not None:
            return self.parent.number
        return self.number if self.spec.ends > 1 else None


def prompt_of(node: Node) -> IdArray:
    """The parent's context and the node's own ids; raises `InvalidRequest` for what a worker does not take."""
    if node.spec.select is not None:
        raise InvalidRequest("a worker scores token ids; the frontend makes them of options", field="select")
    parts = [] if node.parent is None else [node.parent.context]
    for segment in node.spec.segments:
        if not isinstance(segment, Ids):
            raise InvalidRequest("a worker takes token ids only; the frontend makes them of text", field="segments")
        try:
            parts.append(unpack_ids(segment.ids))
        except ValueError:
            raise InvalidRequest("segment ids are not whole int32 numbers", field="segments") from None
    return np.concatenate(parts) if parts else _NO_IDS


def subtree(node: Node) -> Iterator[Node]:
    """The node and all below it, parents first."""
    pending = [node]
    while pending:
        node = pending.pop()
        yield node
        pending += node.children
