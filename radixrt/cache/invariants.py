"""What must hold of the cache between any two calls, checked by walking all of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from radixrt.cache.children import TOKEN
from radixrt.cache.eviction import EvictionIndex
from radixrt.cache.lease import Lease
from radixrt.cache.node import Node, Root, as_numbers
from radixrt.cache.pool import PageState
from radixrt.cache.tree import PrefixTree
from radixrt.errors import InternalError

SHOWN_NODES = 200
SHOWN_VALUES = 16


class BrokenInvariant(InternalError):
    """The cache contradicts itself. The message says how, and draws the tree; what is served may be wrong."""


def check_tree(tree: PrefixTree) -> None:
    """Nodes, their order, their pages, the pool's states, the evictable count, the index and the hints agree."""
    nodes = list(tree.walk())
    for node in nodes:
        _check_node(tree, node)
    for namespace, root in tree.roots.items():
        if root.namespace != namespace or root.parent is not None or root.ids or root.pages:
            _broken(tree, f"the root of {namespace} is not a root of it")
        if root.children is None and root.locks == 0:
            _broken(tree, f"the root of {namespace} has neither children nor leases")

    inner = [node for node in nodes if not isinstance(node, Root)]
    _check_pool(tree, inner)
    _check_evictable(tree, [node for node in inner if node.locks == 0])
    _check_expectations(tree, nodes)


def check_owned(tree: PrefixTree, owned: Iterable[NDArray[np.int32]]) -> None:
    """The owned pages are exactly these."""
    given = sorted(page for pages in owned for page in pages.tolist())
    actual = np.flatnonzero(tree.pool.states == PageState.OWNED).tolist()
    if given != actual:
        stray = sorted(Counter(given) - Counter(actual)), sorted(Counter(actual) - Counter(given))
        _broken(tree, f"requests hold pages {stray[0]} that are not owned or held twice; nobody holds {stray[1]}")


def check_leases(tree: PrefixTree, leases: Iterable[Lease]) -> None:
    """Every lock belongs to one of these leases, and their page tables are those of their paths."""
    locks: Counter[int] = Counter()
    for lease in leases:
        locks.update(id(node) for node in lease.end.path())
        if not np.array_equal(lease.pages, _path_pages(lease.end)):
            _broken(tree, f"a lease has pages {_some(lease.pages)}, its path {_some(_path_pages(lease.end))}")
        held, partial = lease.partial_node, lease.partial
        if (held is None) != (partial is None):
            _broken(tree, "a lease has a partial page without its node, or the other way round")
        if held is not None and partial is not None:
            locks[id(held)] += 1
            tokens, pages = len(held.ids) // TOKEN, as_numbers(held.pages)
            if pages.tolist() != [partial.page] or not 0 < partial.slots <= tokens:
                _broken(tree, f"a lease holds {partial} of a node with {tokens} tokens, {_some(pages)}")
    nodes = list(tree.walk())
    for node in nodes:
        if node.locks != locks[id(node)]:
            _broken(tree, f"{_describe(node)} should have {locks[id(node)]} locks")
    if not locks.keys() <= {id(node) for node in nodes}:
        _broken(tree, "a lease holds a node that is not in the tree")


def _path_pages(end: Node) -> NDArray[np.int32]:
    """The page table of the path that ends in `end`, int32 [pages]."""
    return as_numbers(b"".join([node.pages for node in end.path()][::-1]))


def _check_node(tree: PrefixTree, node: Node) -> None:
    size = tree.page_size
    tokens, odd = divmod(len(node.ids), TOKEN)
    if odd or len(node.pages) % TOKEN or node.page_count != -(-tokens // size):
        _broken(tree, f"{_describe(node)} has {len(node.ids)} bytes of ids and {len(node.pages)} of pages of {size}")
    if tokens % size and (node.children is not None or node.page_count != 1):
        _broken(tree, f"{_describe(node)} has a part-full page and is not a leaf of that page alone")
    if not isinstance(node, Root) and tokens == 0:
        _broken(tree, f"{_describe(node)} has no tokens")
    if node.locks < 0 or (node.locks == 0 and node.rank is None and not isinstance(node, Root)):
        _broken(tree, f"{_describe(node)} has {node.locks} locks and rank {node.rank}")
    children = list(node.offspring())
    if not isinstance(node.children, Node | None) and len(children) < 2:
        _broken(tree, f"{_describe(node)} keeps a container for {len(children)} children")
    for child in children:
        if child.parent is not node:
            _broken(tree, f"{_describe(child)} does not know its parent")
        if child.locks and not node.locks:
            _broken(tree, f"{_describe(child)} is leased, its parent is not")
    page = size * TOKEN
    if any(a.ids[:page] >= b.ids[:page] for a, b in pairwise(children)):
        _broken(tree, f"the children of {_describe(node)} are out of order, or two begin with the same page")
    for child in children:
        if node.child_of(child.ids) is not child:
            _broken(tree, f"{_describe(child)} is not found among the children of its parent")


def _check_evictable(tree: PrefixTree, unlocked: list[Node]) -> None:
    pages = sum(node.page_count for node in unlocked)
    if tree.evictable != pages:
        _broken(tree, f"{tree.evictable} pages count as evictable, {pages} are")
    leaves = {id(node) for node in unlocked if node.children is None}
    entries = list(tree.index.entries())
    if len(entries) != len(tree.index) or len(entries) != len(leaves) or {id(node) for _, node in entries} != leaves:
        _broken(tree, f"the index has {len(entries)} nodes and counts {len(tree.index)}, not the {len(leaves)} leaves")
    for rank, node in entries:
        if rank != EvictionIndex.rank_of(node):
            _broken(tree, f"{_describe(node)} stands in the index under the rank {rank}")


def _check_expectations(tree: PrefixTree, nodes: list[Node]) -> None:
    on_nodes = {id(hint): node for node in nodes for hint in node.expected or ()}
    hints = [] if tree.expectations is None else list(tree.expectations.items())
    if len(hints) != len(on_nodes) or any(on_nodes.get(id(hint)) is not hint.node for hint in hints):
        _broken(tree, f"{len(hints)} hints hold, and nodes have {len(on_nodes)}, or one is at another node")
    if any(node.expected == [] or (node.expected and isinstance(node, Root)) for node in nodes):
        _broken(tree, "an empty list of hints, or a hint at a root")


def _check_pool(tree: PrefixTree, nodes: list[Node]) -> None:
    pool = tree.pool
    for state in PageState:
        actual = int((pool.states == state).sum())
        if pool.counts[state] != actual:
            _broken(tree, f"{pool.counts[state]} pages count as {state.name.lower()}, {actual} are")
    if sorted(pool.free_list.tolist()) != np.flatnonzero(pool.states == PageState.FREE).tolist():
        _broken(tree, "the free list is not the list of free pages")
    pages = sorted(page for node in nodes for page in as_numbers(node.pages).tolist())
    if pages != np.flatnonzero(pool.states == PageState.TREE).tolist():
        _broken(tree, "the pages of the nodes are not the pages in the tree, or two nodes share one")


def _broken(tree: PrefixTree, reason: str) -> NoReturn:
    raise BrokenInvariant(f"{reason}\n{draw(tree)}")


def draw(tree: PrefixTree) -> str:
    """The pool's counts and the tree, a line a node, cut off after `SHOWN_NODES` nodes."""
    counts = ", ".join(f"{tree.pool.counts[state]} {state.name.lower()}" for state in PageState)
    lines = [f"{tree.pool.pages} pages of {tree.page_size}: {counts}; {tree.evictable} evictable"]
    stack: list[tuple[int, Node]] = [(0, root) for root in tree.roots.values()]
    while stack:
        depth, node = stack.pop()
        if len(lines) > SHOWN_NODES:
            lines.append("...")
            break
        lines.append("  " * depth + _describe(node))
        stack.extend((depth + 1, child) for child in node.offspring())
    return "\n".join(lines)


def _describe(node: Node) -> str:
    what = f"root {node.namespace}" if isinstance(node, Root) else _stretch(node)
    hints = f" expected {[hint.next_use for hint in node.expected]}" if node.expected else ""
    return f"[{what} locks {node.locks} rank {node.rank}{hints}]"


def _stretch(node: Node) -> str:
    whole = len(node.ids) // TOKEN * TOKEN, len(node.pages) // TOKEN * TOKEN
    ids, pages = as_numbers(node.ids[: whole[0]]), as_numbers(node.pages[: whole[1]])
    return f"ids {_some(ids)} pages {_some(pages)}"


def _some(values: NDArray[np.int32]) -> str:
    shown = " ".join(map(str, values[:SHOWN_VALUES].tolist()))
    return shown if len(values) <= SHOWN_VALUES else f"{shown} ... ({len(values)})"
