"""Drawing a recorded tree: each node's text, the tokens computed for it and the tokens reused.

poem
├── text  "Write about the sea.\\n"
├── fork  2 branches
│   ├── branch 0
│   │   └── gen line  "The grey tide turns"  12 computed, 310 reused, stop
...
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from radixrt.lang.marked import shown_marks
from radixrt.lang.results import Choice
from radixrt.lang.tree import ForkNode, GenNode, JoinNode, Node, RoleNode, SelectNode, Strand, TextNode
from radixrt.protocol.constraint import field_of
from radixrt.protocol.sampling import SamplingParams

if TYPE_CHECKING:
    from rich.tree import Tree

SHOWN_CHARACTERS = 60


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the drawing and those below it."""

    text: str
    below: list[Line] = field(default_factory=list)


def lines(strand: Strand, *, characters: int = SHOWN_CHARACTERS) -> list[Line]:
    """The drawing of a strand as data; neighbouring texts share a line, texts are cut to so many characters."""
    drawn: list[Line] = []
    constant = ""
    for node in strand.nodes():
        if isinstance(node, TextNode):
            constant += node.text
            continue
        if constant:
            drawn.append(Line(f"text  {_short(constant, characters)}"))
            constant = ""
        drawn += _node_lines(node, characters)
    if constant:
        drawn.append(Line(f"text  {_short(constant, characters)}"))
    return drawn


def render_plain(title: str, strand: Strand, *, characters: int = SHOWN_CHARACTERS) -> str:
    """The tree as plain text."""
    return "\n".join([title, *_indented(lines(strand, characters=characters))])


def render_rich(title: str, strand: Strand, *, characters: int = SHOWN_CHARACTERS) -> Tree:
    """The tree for a rich console."""
    from rich.text import Text  # slow to import, and seldom wanted
    from rich.tree import Tree

    tree = Tree(Text(title, "bold"))

    def add(branch: Tree, below: Iterable[Line]) -> None:
        for line in below:
            kind, gap, rest = line.text.partition("  ")
            add(branch.add(Text.assemble((kind, "cyan"), gap, rest)), line.below)

    add(tree, lines(strand, characters=characters))
    return tree


def render_svg(title: str, strand: Strand, *, characters: int = SHOWN_CHARACTERS) -> str:
    """The tree as an SVG document."""
    import io

    from rich.console import Console

    drawing = Console(record=True, file=io.StringIO(), width=characters + 60)
    drawing.print(render_rich(title, strand, characters=characters))
    return drawing.export_svg(title=title)


def _node_lines(node: Node, characters: int) -> Iterator[Line]:
    match node:
        case RoleNode():
            yield Line(f"role  {node.role} {node.edge}s")
        case SelectNode():
            yield _select_line(node, characters)
        case GenNode():
            name = f"gen {node.name}" if node.name else "gen"
            if node.generation.failure is not None:
                yield Line(f"{name}  failed: {node.generation.failure.cause}")
            elif node.asked is not None and not any(choice.pieces or choice.end for choice in node.generation.choices):
                yield Line(f"{name}  {_asked(node.asked)}")
            else:
                for choice in node.generation.choices:
                    yield Line(f"{name}  {_short(choice.text, characters)}  {_tokens(choice)}")
        case ForkNode():
            branches = [
                Line(f"branch {i}", lines(strand, characters=characters)) for i, strand in enumerate(node.branches)
            ]
            yield Line(f"fork  {len(branches)} branches", branches)
        case JoinNode():
            yield Line(f"join  {node.mode}")


def _select_line(node: SelectNode, characters: int) -> Line:
    """The decision, and below it each option with its mean log-probability."""
    name = f"select {node.name}" if node.name else "select"
    selection = node.generation
    if selection.failure is not None:
        return Line(f"{name}  failed: {selection.failure.cause}")
    choice = selection.choices[0]
    meta = selection.meta_info(choice)
    if not meta:
        return Line(f"{name}", [Line(f"option  {_short(text, characters)}") for text in selection.options])
    reused = meta["cached_tokens"]
    computed = meta["prompt_tokens"] - reused
    options = [
        Line(f"option  {_short(text, characters)}  {value:.4f}")
        for text, value in zip(selection.options, meta["normalized_prompt_logprobs"], strict=True)
    ]
    told = f"{computed} computed, {reused} reused, {meta['choices_method']}"
    return Line(f"{name}  {_short(choice.text, characters)}  {told}", options)


def _asked(sampling: SamplingParams) -> str:
    """What is known of a generation before its first token."""
    parts = [f"up to {sampling.max_tokens} tokens"]
    if sampling.n > 1:
        parts.append(f"{sampling.n} choices")
    if sampling.constraint is not None:
        parts.append(field_of(sampling.constraint))
    if sampling.stop:
        parts.append("stops at " + " or ".join(_short(stop, SHOWN_CHARACTERS) for stop in sampling.stop))
    return ", ".join(parts)


def _tokens(choice: Choice) -> str:
    if choice.end is None:
        return "running"
    usage = choice.end.usage
    computed = usage.prompt_tokens - usage.cached_tokens + usage.completion_tokens
    return f"{computed} computed, {usage.cached_tokens} reused, {choice.end.reason}"


def _short(text: str, characters: int) -> str:
    text = shown_marks(text)
    if len(text) > characters:
        half = (characters - 1) // 2
        text = f"{text[:half]}…{text[-half:]}"
    return '"' + text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"') + '"'


def _indented(below: list[Line], indent: str = "") -> Iterator[str]:
    for index, line in enumerate(below):
        last = index == len(below) - 1
        yield f"{indent}{'└── ' if last else '├── '}{line.text}"
        yield from _indented(line.below, indent + ("    " if last else "│   "))
