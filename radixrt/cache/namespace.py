"""What must match besides tokens for one request's keys and values to serve another."""

from __future__ import annotations

from typing import TypeAlias

Namespace: TypeAlias = tuple[tuple[str, str], ...]
"""Tagged values in a fixed order, `(("model", "x"), ("salt", "tenant-1"))`; empty where nothing is told apart.

Never a joined string: no value of one tag can pass for another tag's.
"""


def namespace(*, model: str | None = None, adapter: str | None = None, cache_salt: str | None = None) -> Namespace:
    """The namespace of a request; None means that the request does not say.

    Args:
        model: which weights computed the keys and values, and which version of them.
        adapter: which adapter was applied to them.
        cache_salt: what separates tenants who must not learn of each other's prompts (CVE-2025-46570). An empty salt
            is a salt: it does not share with those who give none.
    """
    tagged = (("model", model), ("adapter", adapter), ("salt", cache_salt))
    return tuple((tag, value) for tag, value in tagged if value is not None)
