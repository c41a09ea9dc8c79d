"""Keeps Python's collector of cyclic garbage from stopping a worker whose cache has grown large.

A collection of the oldest generation goes through every object there is: with a million nodes in the prefix tree that
takes a second, in which nobody gets a token. It would find nothing. Nodes, leases and requests are freed when the last
reference to them goes, and the one cycle that lasts, a program and its nodes, is broken when the program is closed
(`Programs.close`).
"""

from __future__ import annotations

import gc

_NEVER = 2**31 - 1


def keep_collections_short() -> None:
    """To be called once all is loaded: from now on only young objects are looked at."""
    gc.collect()
    gc.freeze()
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, _NEVER)
