"""The recorded tree: what the statements of a run became, in memory for as long as one of its states lives.

A node continues its parent; a strand is a branch's stretch of the tree. A fork node has one strand for each branch,
and the branch that forked goes on below it too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from radixrt.lang.results import Generation
from radixrt.lang.selection import Selection
from radixrt.protocol.sampling import SamplingParams
from radixrt.protocol.segments import Segment

JoinMode: TypeAlias = Literal["gather_variable", "concate_and_append"]
"""SGLang's names. The first gathers variables into lists, the second appends the branches' text."""


@dataclass(slots=True, eq=False)
class Node:
    """Base of the nodes. The parent is None for the first of a program."""

    parent: Node | None


@dataclass(slots=True, eq=False)
class TextNode(Node):
    """A constant, or text of a branch that a join appended."""

    text: str
    segment: Segment
    """What the runtime is told: ids where the text was generated."""


@dataclass(slots=True, eq=False)
class RoleNode(Node):
    """One edge of a turn."""

    role: str
    edge: Literal["begin", "end"]
    told: str | Callable[[], str]
    """The text, or what to ask for it."""

    @property
    def text(self) -> str:
        """What the chat template writes; raises what the backend raises."""
        if not isinstance(self.told, str):
            self.told = self.told()
        return self.told


@dataclass(slots=True, eq=False)
class GenNode(Node):
    """Text by the model, kept as the variable `name` if it has one."""

    name: str | None
    generation: Generation
    asked: SamplingParams | None = None
    """What it is to be like; None of a select."""


@dataclass(slots=True, eq=False)
class SelectNode(GenNode):
    """Text chosen among options by their scores."""

    generation: Selection


@dataclass(slots=True, eq=False)
class ForkNode(Node):
    """Where branches begin."""

    branches: tuple[Strand, ...] = ()


@dataclass(slots=True, eq=False)
class JoinNode(Node):
    """Where they ended. What a join appends follows as nodes of its own."""

    mode: JoinMode


@dataclass(slots=True, eq=False)
class Strand:
    """A stretch of the tree: the nodes below `start` down to `head` (None: there is none)."""

    start: Node | None
    head: Node | None

    def nodes(self) -> list[Node]:
        """The nodes, in order."""
        return path(self.head, self.start)


def path(head: Node | None, start: Node | None = None) -> list[Node]:
    """The nodes from below `start` (None: from the first) down to `head`, in order."""
    nodes = []
    while head is not None and head is not start:
        nodes.append(head)
        head = head.parent
    nodes.reverse()
    return nodes


def generations(nodes: list[Node]) -> list[Generation]:
    """Those of the `gen` nodes among `nodes`."""
    return [node.generation for node in nodes if isinstance(node, GenNode)]


def shown(node: Node) -> str:
    """The text that a node adds; of a generation, choice 0 as far as it has come. Forks and joins add none."""
    match node:
        case TextNode() | RoleNode():
            return node.text
        case GenNode():
            return node.generation.choices[0].text
        case _:
            return ""


def text_of(nodes: list[Node]) -> str:
    """The text of complete nodes. Raises `GenerationFailed` for the first that failed."""
    for generation in generations(nodes):
        generation.raise_failure()
    return "".join(map(shown, nodes))


def messages_of(nodes: list[Node]) -> list[dict[str, str]]:
    """The whole turns among complete nodes, as chat messages; leading white space of a turn is left out.

    Raises `GenerationFailed` for the first node that failed.
    """
    messages: list[dict[str, str]] = []
    turn: list[Node] = []
    for node in nodes:
        if not isinstance(node, RoleNode):
            turn.append(node)
        elif node.edge == "end":
            messages.append({"role": node.role, "content": text_of(turn).lstrip()})
        else:
            turn = []
    return messages
