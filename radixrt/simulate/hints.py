"""The programs of a trace, as the worker would know them: told to the cache as they come and end.

A request is a node of its program's request tree, and continues its parent. The rules are the worker's own
(`cache/next_uses.py`); like it, they know of a request only when that has come.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from radixrt.cache.namespace import Namespace
from radixrt.cache.next_uses import NextUses
from radixrt.cache.prefix_cache import PrefixCache
from radixrt.protocol.ids import IdArray, as_ids
from radixrt.simulate.trace import Trace

_NO_IDS = as_ids([])


@dataclass(eq=False, slots=True)
class _Program:
    """A program between its first request and its last end."""

    namespace: Namespace
    nodes: dict[int, _Node] = field(default_factory=dict)
    """By the places of their requests in the trace."""


@dataclass(eq=False, slots=True)
class _Node:
    """A request that has come."""

    program: _Program
    number: int
    """Its place in the trace."""
    parent: _Node | None
    children: list[_Node] = field(default_factory=list)
    context: IdArray = field(default_factory=lambda: _NO_IDS)
    complete: bool = False
    failed: bool = False
    """Never: what a trace has ends."""


class Hints:
    """Follows the programs of one replay."""

    def __init__(self, cache: PrefixCache, trace: Trace) -> None:
        self._trace = trace
        self._next_uses = NextUses(cache)
        self._live: dict[str, _Program] = {}
        self.left: Counter[str] = Counter(request.program for request in trace if request.program is not None)
        """Requests that each program has still to end."""

    def came(self, places: Iterable[int]) -> None:
        """These requests of the trace have arrived, at one time."""
        back: dict[_Program, None] = {}
        for place in places:
            request = self._trace[place]
            if request.program is None:
                continue
            program = self._live.get(request.program)
            if program is None:
                program = self._live[request.program] = _Program(request.namespace)
            parent = None if request.parent is None else program.nodes.get(request.parent)
            node = program.nodes[place] = _Node(program, place, parent)
            if parent is not None:
                parent.children.append(node)
            back[program] = None
        for program in back:
            self._next_uses.submitted(program)

    def over(self, place: int, context: IdArray) -> None:
        """A request has ended, and its prompt and output are in the cache as far as they were computed."""
        name = self._trace[place].program
        if name is None:
            return
        program = self._live[name]
        node = program.nodes[place]
        node.context, node.complete = context, True
        self._next_uses.completed(node)
        self.left[name] -= 1
        if not self.left[name]:
            del self._live[name]
            self._next_uses.closed(program)
