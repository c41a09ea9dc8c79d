"""The nodes of one program on the frontend's side: what is known of each, and what it takes from those above it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from radixrt.errors import RadixError
from radixrt.protocol.ids import IdArray
from radixrt.protocol.messages import TreeNode
from radixrt.protocol.segments import Segment, Text
from radixrt.text.conversation import Known
from radixrt.text.encoder import Prompt
from radixrt.text.place import Place
from radixrt.text.select_plan import SelectPlan
from radixrt.text.selection import Selection


@dataclass(eq=False)
class ProgramNode:
    """A node as it was submitted, and what has become of it."""

    spec: TreeNode
    parent: ProgramNode | None
    place: Place = field(default_factory=Place)
    """Where the context of its children begins. Means nothing if `whole`."""
    whole: bool = False
    """Whether it, and so all below it, is rendered whole."""
    plan: IdArray | SelectPlan | None = None
    """What the worker is to get of it (`whole`: unknown while it is held); of a scored node, also what it got."""
    heals: bool = False
    """Whether the last of its ids is to be drawn anew."""
    held_by: ProgramNode | None = None
    """The node above whose text it waits for."""
    selection: Selection | None = None
    """Of a select that the worker has."""
    error: RadixError | None = None
    """Why it failed, and with it all below."""
    ids: list[bytes] = field(default_factory=list)
    """Of choice 0, which children continue: the packed ids so far..."""
    text: list[str] = field(default_factory=list)
    """...and their text."""
    generated: Known | Text | None = None
    """Both, once choice 0 is complete; of a select, the option that was chosen."""

    def take(self, prompt: Prompt) -> None:
        """These are its ids."""
        self.plan = prompt.ids
        self.heals = self.spec.sampling is not None and self.spec.sampling.heal and prompt.ends_as_text


def _above(node: ProgramNode) -> Iterator[ProgramNode]:
    """The ancestors, from the parent up."""
    while (parent := node.parent) is not None:
        yield parent
        node = parent


def text_awaited_by(node: ProgramNode) -> ProgramNode | None:
    """The nearest ancestor without whose text the node cannot be released. When it is known, so is what is above it."""
    parent = node.parent
    if node.whole:
        awaited = next((a for a in _above(node) if a.spec.sampling is not None or a.spec.select is not None), None)
    elif parent is not None and parent.spec.select is None:
        awaited = parent.held_by
    else:
        awaited = parent
    return None if awaited is None or awaited.generated is not None else awaited


def worker_parent(node: ProgramNode) -> int | None:
    """The worker's node that this one continues."""
    parent = node.parent
    if parent is not None and parent.selection is not None and parent.selection.chosen is not None:
        return parent.selection.node_of(parent.selection.chosen)
    return node.spec.parent


def error_above(node: ProgramNode) -> RadixError | None:
    """Why what the node continues has failed, if it has. A node above that gets an end is told of what is above it."""
    for above in _above(node):
        if above.error is not None or above.spec.ends:
            return above.error
    return None


def context_of(node: ProgramNode) -> Iterator[Segment | Known]:
    """All that stands before what `node` generates or selects."""
    for above in [*_above(node)][::-1]:
        yield from above.spec.segments
        if above.generated is not None:
            yield above.generated
    yield from node.spec.segments
