"""What must hold of the cache between any two calls, checked by walking all of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from radixrt.cache.lease import Lease
from radixrt.cache.node import Node, Root, first_page, path_pages
from radixrt.cache.pool import PageState
from radixrt.cache.tree import PrefixTree
from radixrt.errors import InternalError

SHOWN_NODES = 200
SHOWN_VALUES = 16


class BrokenInvariant(InternalError):
    """The cache contradicts itself. The message says how, and draws the tree; what is served may be wrong."""


def check_tree(tree: PrefixTree) -> None:
    """Nodes, their order, their pages, the pool's states, the evictable count and the index agree."""
    nodes = list(_walk(tree))
    for node in nodes:
        _check_node(tree, node)
    for namespace, root in tree.roots.items():
        if root.namespace != namespace or root.parent is not None or len(root.ids) or len(root.pages):
            _broken(tree, f"the root of {namespace} is not a root of it")
        if root.children is None and root.locks == 0:
            _broken(tree, f"the root of {namespace} has neither children nor leases")

    inner = [node for node in nodes if not isinstance(node, Root)]
    _check_pool(tree, inner)
    unlocked = [node for node in inner if node.locks == 0]
    pages = sum(len(node.pages) for node in unlocked)
    if tree.evictable != pages:
        _broken(tree, f"{tree.evictable} pages count as evictable, {pages} are")
    leaves = {id(node) for node in unlocked if node.children is None}
    indexed = [id(node) for node in tree.index.nodes()]
    if len(indexed) != len(tree.index) or len(indexed) != len(leaves) or set(indexed) != leaves:
        _broken(tree, f"the index has {len(indexed)} nodes and counts {len(tree.index)}, not the {len(leaves)} leaves")


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
        if not np.array_equal(lease.pages, path_pages(lease.end)):
            _broken(tree, f"a lease has pages {_some(lease.pages)}, its path {_some(path_pages(lease.end))}")
        held, partial = lease.partial_node, lease.partial
        if (held is None) != (partial is None):
            _broken(tree, "a lease has a partial page without its node, or the other way round")
        if held is not None and partial is not None:
            locks[id(held)] += 1
            if held.pages.tolist() != [partial.page] or not 0 < partial.slots <= len(held.ids):
                _broken(tree, f"a lease holds {partial} of a node with {len(held.ids)} tokens, {_some(held.pages)}")
    nodes = list(_walk(tree))
    for node in nodes:
        if node.locks != locks[id(node)]:
            _broken(tree, f"{_describe(node)} should have {locks[id(node)]} locks")
    if not locks.keys() <= {id(node) for node in nodes}:
        _broken(tree, "a lease holds a node that is not in the tree")


def _check_node(tree: PrefixTree, node: Node) -> None:
    size = tree.page_size
    tokens = len(node.ids)
    if node.ids.dtype != np.int32 or node.pages.dtype != np.int32:
        _broken(tree, f"{_describe(node)} holds {node.ids.dtype} ids and {node.pages.dtype} pages, not int32")
    if len(node.pages) != -(-tokens // size):
        _broken(tree, f"{_describe(node)} has {tokens} tokens in {len(node.pages)} pages of {size}")
    if tokens % size and (node.children is not None or len(node.pages) != 1):
        _broken(tree, f"{_describe(node)} has a part-full page and is not a leaf of that page alone")
    if not isinstance(node, Root) and (tokens == 0 or node.key != first_page(node.ids, size)):
        _broken(tree, f"{_describe(node)} stands under a key that is not its first page")
    if node.locks < 0 or (node.locks == 0 and node.rank is None and not isinstance(node, Root)):
        _broken(tree, f"{_describe(node)} has {node.locks} locks and rank {node.rank}")
    if node.children is None:
        return
    children = list(node.children)
    if not children:
        _broken(tree, f"{_describe(node)} is a leaf with an empty container of children")
    for child in children:
        if child.parent is not node:
            _broken(tree, f"{_describe(child)} does not know its parent")
        if child.locks and not node.locks:
            _broken(tree, f"{_describe(child)} is leased, its parent is not")
    if any(a.key >= b.key for a, b in pairwise(children)):
        _broken(tree, f"the children of {_describe(node)} are out of order, or two begin with the same page")


def _check_pool(tree: PrefixTree, nodes: list[Node]) -> None:
    pool = tree.pool
    for state in PageState:
        actual = int((pool.states == state).sum())
        if pool.counts[state] != actual:
            _broken(tree, f"{pool.counts[state]} pages count as {state.name.lower()}, {actual} are")
    if sorted(pool.free_list.tolist()) != np.flatnonzero(pool.states == PageState.FREE).tolist():
        _broken(tree, "the free list is not the list of free pages")
    pages = sorted(page for node in nodes for page in node.pages.tolist())
    if pages != np.flatnonzero(pool.states == PageState.TREE).tolist():
        _broken(tree, "the pages of the nodes are not the pages in the tree, or two nodes share one")


def _walk(tree: PrefixTree) -> Iterator[Node]:
    stack: list[Node] = list(tree.roots.values())
    while stack:
        node = stack.pop()
        yield node
        if node.children is not None:
            stack.extend(node.children)


def _broken(tree: PrefixTree, reason: str) -> NoReturn:
    raise BrokenInvariant(f"{reason}\n{draw(tree)}")


def draw(tree: PrefixTree) -> str:
    """The pool's counts and the tree, a line a node, cut off after `SHOWN_NODES` nodes."""
    counts = ", ".join(f"{count} {state.name.lower()}" for state, count in tree.pool.counts.items())
    lines = [f"{tree.pool.pages} pages of {tree.page_size}: {counts}; {tree.evictable} evictable"]
    stack: list[tuple[int, Node]] = [(0, root) for root in tree.roots.values()]
    while stack:
        depth, node = stack.pop()
        if len(lines) > SHOWN_NODES:
            lines.append("...")
            break
        lines.append("  " * depth + _describe(node))
        stack.extend((depth + 1, child) for child in node.children or ())
    return "\n".join(lines)


def _describe(node: Node) -> str:
    what = f"root {node.namespace}" if isinstance(node, Root) else f"ids {_some(node.ids)} pages {_some(node.pages)}"
    return f"[{what} locks {node.locks} rank {node.rank}]"


def _some(values: NDArray[np.int32]) -> str:
    shown = " ".join(map(str, values[:SHOWN_VALUES].tolist()))
    return shown if len(values) <= SHOWN_VALUES else f"{shown} ... ({len(values)})"
