"""Cache events are enough to keep a picture of the tree, whenever one begins to look."""

from __future__ import annotations

import msgspec

from radixrt.cache.namespace import namespace
from radixrt.protocol.cache_events import CacheEvent, CacheReset, PagesInserted, PagesRemoved
from radixrt.protocol.ids import pack_ids
from tests.cache.mirror import Mirror, contents
from tests.cache.world import World


def test_a_mirror_follows_insertions_cuts_growth_replacement_and_eviction() -> None:
    world = World(12, 4)
    watch = world.cache.watch()
    mirror = Mirror()
    seen: set[str] = set()
    salt = namespace(cache_salt="a")
    prompts = [[1] * 10, [1] * 11, [1] * 12 + [2], [1] * 6 + [3] * 6, [5] * 9, [6] * 16, [1] * 12]
    for prompt, space in [(prompt, space) for prompt in prompts for space in ((), salt)]:
        world.compute(prompt, space)
        events = watch.drain()
        seen |= {event.reason for event in events if isinstance(event, PagesRemoved)}
        mirror.apply(events)
        assert mirror.pages == contents(world.cache)
        assert mirror.longest(space, tuple(prompt)) == len(prompt)
    assert world.cache.flush() > 0
    events = watch.drain()
    assert [event.reason for event in events if isinstance(event, PagesRemoved)] == ["flushed"]
    mirror.apply(events)
    assert mirror.pages == {}
    assert mirror.resets == 1
    assert seen == {"evicted", "superseded"}


def test_who_begins_to_look_later_gets_the_tree_as_it_is() -> None:
    world = World(32, 4)
    for prompt in ([1] * 10, [1] * 6 + [2] * 3, [3] * 5):
        world.compute(prompt)
    watch, mirror = world.cache.watch(), Mirror()
    mirror.apply(watch.drain())
    assert mirror.pages == contents(world.cache)
    assert len(mirror.pages) == world.cache.tree_pages > 4
    assert watch.drain() == []


def test_a_reader_that_falls_behind_costs_no_more_memory_and_begins_anew() -> None:
    world = World(32, 4)
    slow, fast = world.cache.watch(limit=5), world.cache.watch()
    mirrors = Mirror(), Mirror()
    mirrors[0].apply(slow.drain())
    mirrors[1].apply(fast.drain())
    for number in range(20):
        world.compute([number] * 7)
        assert len(slow._events) <= 5
    for watch, mirror in zip((slow, fast), mirrors, strict=True):
        mirror.apply(watch.drain())
        assert mirror.pages == contents(world.cache)
    assert (mirrors[0].resets, mirrors[1].resets) == (2, 1)


def test_a_stream_that_has_ended_gets_nothing_more() -> None:
    world = World(8, 4)
    watch = world.cache.watch()
    watch.drain()
    world.cache.unwatch(watch)
    world.compute([1] * 8)
    assert watch.drain() == []


def test_an_event_names_tokens_pages_and_parent() -> None:
    world = World(8, 4)
    watch = world.cache.watch()
    assert watch.drain() == [CacheReset(pages=8, page_size=4)]
    salt = namespace(cache_salt="a")
    world.compute([1, 2, 3, 4, 5, 6, 7, 8], salt)
    world.compute([1, 2, 3, 4, 5, 6, 7, 8, 9, 10], salt)
    assert watch.drain() == [
        PagesInserted(salt, None, pack_ids([0, 1]), pack_ids([1, 2, 3, 4, 5, 6, 7, 8])),
        PagesInserted(None, 1, pack_ids([2]), pack_ids([9, 10])),
    ]
    world.allocate(7)
    events: list[CacheEvent] = watch.drain()
    assert events == [PagesRemoved(pack_ids([2, 1]), "evicted")]


def test_events_travel_as_msgpack() -> None:
    world = World(8, 4)
    watch = world.cache.watch()
    world.compute([1, 2, 3, 4, 5], namespace(cache_salt="a"))
    events = watch.drain()
    world.cache.flush()
    events += watch.drain()
    frame = msgspec.msgpack.encode(events)
    assert msgspec.msgpack.decode(frame, type=list[CacheEvent]) == events
    assert len(events) == 4


def test_nothing_is_kept_when_nobody_looks() -> None:
    world = World(8, 4)
    world.compute([1] * 8)
    assert world.cache._tree.watches == []
