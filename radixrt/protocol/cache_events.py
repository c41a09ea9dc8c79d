"""What happens to the prefix cache, for whoever keeps a picture of it: a router, a page that shows the tree.

A mirror needs pages only, not nodes: each page has one parent, the page before it on its path, and nodes that are cut
or grown change nothing of that. From `Reset` on, applying each event in turn gives the tree as it is.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

RemovalReason: TypeAlias = Literal["evicted", "flushed", "superseded"]
"""To make room; by `flush`; or a part-full page, for one that holds the same tokens and more."""


class CacheReset(msgspec.Struct, frozen=True, tag="reset"):
    """Forget the picture; what is in the cache now follows as `PagesInserted`. Comes first, and after a loss."""

    pages: int
    """Pages of the pool."""
    page_size: int
    """Tokens."""


class PagesInserted(msgspec.Struct, frozen=True, tag="inserted"):
    """Consecutive pages of one path have entered the tree."""

    namespace: tuple[tuple[str, str], ...] | None
    """Of pages that begin a path; None for those behind a parent, which are in its namespace."""
    parent: int | None
    """The page before the first of these; None where they begin a path."""
    pages: bytes
    """int32 [pages], little-endian, each the parent of the next."""
    ids: bytes
    """int32 [tokens], little-endian. The last page may be part full: it has no children."""


class PagesRemoved(msgspec.Struct, frozen=True, tag="removed"):
    """Pages have left the tree: none of them has a child that stays."""

    pages: bytes
    """int32 [pages], little-endian."""
    reason: RemovalReason


CacheEvent: TypeAlias = CacheReset | PagesInserted | PagesRemoved
