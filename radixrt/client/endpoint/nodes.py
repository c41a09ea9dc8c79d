"""The nodes of one program: what each continues, and how a request tells of that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from radixrt.errors import RadixError
from radixrt.protocol.messages import TreeNode
from radixrt.protocol.segments import Fork, Segment


@dataclass(eq=False)
class EndpointNode:
    """A node as it was submitted, and what has become of it."""

    spec: TreeNode
    parent: EndpointNode | None
    end: Segment | None = None
    """What ends it in the context of those below, once it is known: a fork point, what was generated, or chosen."""
    open: set[int] = field(default_factory=set)
    """Choices that have no end yet."""
    scored: bool = False
    """Of a select, whether its scores were told."""
    error: RadixError | None = None
    """Why those below cannot go on."""

    def __post_init__(self) -> None:
        self.open |= set(range(self.spec.ends))
        if self.spec.sampling is None and self.spec.select is None:
            self.end = Fork()

    @property
    def above(self) -> Iterator[EndpointNode]:
        """The ancestors, from the parent up."""
        node = self.parent
        while node is not None:
            yield node
            node = node.parent

    @property
    def awaited(self) -> EndpointNode | None:
        """The nearest ancestor whose end is not known. When it is, so are those above it."""
        return next((node for node in self.above if node.end is None), None)

    @property
    def error_above(self) -> RadixError | None:
        """Why what the node continues has failed, if it has."""
        return next((node.error for node in self.above if node.error is not None), None)

    def is_below(self, node: EndpointNode) -> bool:
        """Whether it continues `node`, or is it."""
        return self is node or any(above is node for above in self.above)

    def context(self) -> Sequence[Segment]:
        """All that it generates from, or chooses or scores behind."""
        segments: list[Segment] = []
        for node in [*self.above][::-1]:
            assert node.end is not None
            segments += [*node.spec.segments, node.end]
        return [*segments, *self.spec.segments]
