"""The picture of a cache that its events give: what a router keeps."""

from __future__ import annotations

from collections.abc import Iterable

from radixrt.cache.namespace import Namespace
from radixrt.cache.prefix_cache import PrefixCache
from radixrt.protocol.cache_events import CacheEvent, CacheReset, PagesInserted
from radixrt.protocol.ids import unpack_ids

Content = tuple[Namespace, tuple[int, ...]]


class Mirror:
    """Each page of the tree with all tokens from the root to its end. Applies events, and checks that they can be."""

    def __init__(self) -> None:
        self.pages: dict[int, Content] = {}
        self.page_size = 0
        self.resets = 0

    def apply(self, events: Iterable[CacheEvent]) -> None:
        for event in events:
            if isinstance(event, CacheReset):
                self.pages.clear()
                self.page_size = event.page_size
                self.resets += 1
            elif isinstance(event, PagesInserted):
                self._insert(event)
            else:
                for page in unpack_ids(event.pages).tolist():
                    del self.pages[page]

    def longest(self, namespace: Namespace, tokens: tuple[int, ...]) -> int:
        """The longest prefix of `tokens` that these pages hold."""
        return max((_common(held, tokens) for space, held in self.pages.values() if space == namespace), default=0)

    def _insert(self, event: PagesInserted) -> None:
        assert (event.namespace is None) == (event.parent is not None)
        namespace: Namespace = event.namespace or ()
        before: tuple[int, ...] = ()
        if event.parent is not None:
            namespace, before = self.pages[event.parent]
            assert len(before) % self.page_size == 0, "a part-full page has no children"
        ids = unpack_ids(event.ids).tolist()
        for number, page in enumerate(unpack_ids(event.pages).tolist()):
            assert page not in self.pages
            before = (*before, *ids[number * self.page_size : (number + 1) * self.page_size])
            self.pages[page] = namespace, before


def contents(cache: PrefixCache) -> dict[int, Content]:
    """The same picture, of the tree itself."""
    found: dict[int, Content] = {}
    size = cache.page_size
    for node in cache._tree.walk():
        path = list(node.path())
        ids = [token for step in reversed(path) for token in memoryview(step.ids).cast("i")]
        pages = memoryview(node.pages).cast("i").tolist()
        before = len(ids) - len(node.ids) // 4
        space = next(namespace for namespace, root in cache._tree.roots.items() if root is path[-1])
        for number, page in enumerate(pages):
            found[page] = space, tuple(ids[: min(before + (number + 1) * size, len(ids))])
    return found


def _common(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
