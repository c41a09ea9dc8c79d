"""The work list of a step's attention: which tile of queries goes over which keys, and what has to be merged after.

Everything is laid out on the CPU in NumPy and goes to the device in one piece.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from radixrt.kernels.interface import AttentionShape, BatchLayout
from radixrt.kernels.transfer import send_joined
from radixrt.kernels.triton.levels import Ints, find_levels
from radixrt.kernels.triton.tiling import Launch, Tiling, attention_tiling, power_of_two

SHARED_KEYS = 128
"""Keys that several rows must have in common to be read together: parts have to be merged for it."""
PROGRAMS_A_PROCESSOR = 4
"""So many, when a context is cut up: enough to hide the wait for memory and to even out unequal items."""

_NO_ITEM = (0, 0, 0, 0, 0, -1)


@dataclass(frozen=True)
class ItemList:
    """Items of one tile size: one launch."""

    items: Tensor
    """int32 [items, 6]: first entry, entries, start of the page table, first key, end of keys, first part or -1."""
    rows: int
    """Query rows of a tile."""
    keys: int
    launch: Launch


@dataclass(frozen=True)
class AttentionPlan:
    """How layers of one kind read the step's keys."""

    lists: tuple[ItemList, ...]
    entries: Tensor
    """int32: the tokens of each tile, tile after tile."""
    parts: int
    """Parts that items leave, each of one token."""
    merged_tokens: Tensor
    """int32 [merged]: the tokens that have parts."""
    part_starts: Tensor
    """int32 [merged + 1]"""
    part_order: Tensor
    """int32 [parts]: merged token i has the parts `part_order[part_starts[i]:part_starts[i + 1]]`."""
    buffer: Tensor
    """All of these and the items, one after another."""


@dataclass
class TritonPlan:
    """A step's layout, on the device, and what was derived from it for each kind of layer there is."""

    layout: BatchLayout
    dtype: torch.dtype
    device: torch.device
    positions: Tensor
    """int32 [T]"""
    slots: Tensor
    """int32 [T]: -1 for a token that is not written."""
    pages: Tensor
    """int32"""
    buffer: Tensor
    """All three, one after another."""
    filled: bool = False
    """Whether lists are filled up to powers of two, for a captured graph."""
    _attention: dict[tuple[int, int, int | None], AttentionPlan] = field(default_factory=dict)

    def attention(self, shape: AttentionShape) -> AttentionPlan:
        """How layers of this shape read the step's keys."""
        key = attention_key(shape)
        if key not in self._attention:
            tiling = attention_tiling(key[0], shape.head_dim, self.dtype, self.device)
            self._attention[key] = plan_attention(self.layout, shape, tiling, self.device, filled=self.filled)
        return self._attention[key]

    def planned(self) -> tuple[AttentionPlan, ...]:
        """Of all kinds of layers that were asked for, in that order."""
        return tuple(self._attention.values())


def attention_key(shape: AttentionShape) -> tuple[int, int, int | None]:
    """What tells kinds of layers apart in a model, where the size of heads is one."""
    return shape.heads // shape.kv_heads, shape.kv_heads, shape.window


def plan_step(layout: BatchLayout, dtype: torch.dtype, device: torch.device) -> TritonPlan:
    """Send the layout to the device."""
    arrays = (layout.positions.numpy(), layout.slots.numpy(), layout.pages.numpy())
    buffer, (positions, slots, pages) = send_joined(arrays, device)
    return TritonPlan(layout, dtype, device, positions, slots, pages, buffer)


def plan_filled_step(layout: BatchLayout, bucket: int, dtype: torch.dtype, device: torch.device) -> TritonPlan:
    """A step of single tokens as a graph of `bucket` tokens takes it.

    Behind the rows' own, positions are row 0's again and again and slots are none, -1: what such a token computes
    differs from what row 0 does from the first attention on. The page table ends in pages that none reads.
    """
    missing = bucket - len(layout.positions)
    arrays = (
        np.pad(layout.positions.numpy(), (0, missing), constant_values=int(layout.positions[0])),
        np.pad(layout.slots.numpy(), (0, missing), constant_values=-1),
        _filled(layout.pages.numpy(), 0),
    )
    buffer, (positions, slots, pages) = send_joined(arrays, device)
    return TritonPlan(layout, dtype, device, positions, slots, pages, buffer, filled=True)


def plan_attention(
    layout: BatchLayout, shape: AttentionShape, tiling: Tiling, device: torch.device, *, filled: bool = False
) -> AttentionPlan:
    """The work list for layers of this shape. `filled`: see `TritonPlan`."""
    group, kv_heads = shape.heads // shape.kv_heads, shape.kv_heads
    tiles = _tiles(layout, group, shape.window, tiling)
    narrow = tiles.counts * group <= tiling.narrow
    pieces = np.ones(len(tiles.counts), np.int64)
    for own, least in ((narrow, tiling.narrow_split), (~narrow, tiling.wide_split)):
        pieces[own] = _pieces(tiles.key_ends[own] - tiles.key_starts[own], least, kv_heads, tiling)
    items, parts = _items(tiles, pieces, tiling.keys)
    order = (items[:, 3] - items[:, 4]).argsort(kind="stable")  # the longest first: no long one is left at the end
    narrow_items = items[:, 1] * group <= tiling.narrow
    lists = [
        (items[order[narrow_items[order] == which]], rows, launch)
        for which, rows, launch in (
            (True, tiling.narrow, tiling.narrow_launch),
            (False, tiling.wide, tiling.wide_launch),
        )
        if (narrow_items == which).any()
    ]
    by_token = parts.argsort(kind="stable")
    merged, counts = np.unique(parts, return_counts=True)
    starts = np.concatenate([[0], counts.cumsum()])
    arrays = [tiles.entries, merged, starts, by_token, *(own for own, _, _ in lists)]
    count = len(parts)
    if filled:
        tokens = _filled(merged, 0)
        arrays = [
            _filled(tiles.entries, 0),
            tokens,
            # Tokens without parts of their own: they are looked at, and nothing is written.
            np.pad(starts, (0, len(tokens) - len(merged)), mode="edge"),
            _filled(by_token, 0),
            *(_filled(own, _NO_ITEM) for own, _, _ in lists),
        ]
        count = len(arrays[3])
    buffer, sent = send_joined(arrays, device)
    return AttentionPlan(
        lists=tuple(
            ItemList(own.view(-1, 6), rows, tiling.keys, launch)
            for own, (_, rows, launch) in zip(sent[4:], lists, strict=True)
        ),
        entries=sent[0],
        parts=count,
        merged_tokens=sent[1],
        part_starts=sent[2],
        part_order=sent[3],
        buffer=buffer,
    )


def _filled(rows: Ints, with_: int | tuple[int, ...]) -> Ints:
    """`rows`, if there are any, and as many more as make them a power of two."""
    if not len(rows):
        return rows
    more = power_of_two(len(rows)) - len(rows)
    return np.concatenate([rows, np.broadcast_to(np.array(with_, rows.dtype), (more, *rows.shape[1:]))])


@dataclass(frozen=True)
class _Tiles:
    """Tiles of query tokens, each over keys of one page table: `counts[i]` entries from `first_entries[i]` on."""

    entries: Ints
    first_entries: Ints
    counts: Ints
    tables: Ints
    key_starts: Ints
    key_ends: Ints


def _tiles(layout: BatchLayout, group: int, window: int | None, tiling: Tiling) -> _Tiles:
    """A row's tokens over its own keys, and the tokens of rows that share pages over those."""
    query_starts, page_starts, contexts = (
        tensor.numpy().astype(np.int64) for tensor in (layout.query_starts, layout.page_starts, layout.context_lengths)
    )
    positions = layout.positions.numpy().astype(np.int64)
    narrow, wide = tiling.narrow // group, tiling.wide // group
    sizes = np.diff(query_starts)
    firsts = contexts - sizes
    # A row that fills tiles by itself gains nothing from others, and would have all its tokens merged.
    shareable = np.where(sizes <= wide, firsts // layout.page_size, 0)
    least = -(-SHARED_KEYS // layout.page_size)
    levels, own_pages = find_levels(layout.pages.numpy(), page_starts[:-1], shareable, least)

    row, offsets, counts = _cut(sizes, np.where(sizes <= narrow, narrow, wide))
    all_starts = [_first_seen(own_pages[row] * layout.page_size, firsts[row] + offsets, window)]
    all_ends = [firsts[row] + offsets + counts]
    entries, all_firsts = [np.arange(query_starts[-1])], [query_starts[row] + offsets]
    all_counts, tables = [counts], [page_starts[row]]
    end = int(query_starts[-1])
    for level in levels:
        tokens = _ranges(query_starts[level.rows], sizes[level.rows])
        _, offsets, counts = _cut(np.array([len(tokens)]), np.array([narrow if len(tokens) <= narrow else wide]))
        lowest = np.minimum.reduceat(positions[tokens], offsets)
        starts = _first_seen(np.full(len(offsets), level.first * layout.page_size), lowest, window)
        ends = np.full(len(offsets), level.end * layout.page_size)
        seen = starts < ends
        entries.append(tokens)
        all_firsts.append(end + offsets[seen])
        all_counts.append(counts[seen])
        tables.append(np.full(int(seen.sum()), page_starts[level.rows[0]]))
        all_starts.append(starts[seen])
        all_ends.append(ends[seen])
        end += len(tokens)
    return _Tiles(*(np.concatenate(a) for a in (entries, all_firsts, all_counts, tables, all_starts, all_ends)))


def _cut(sizes: Ints, tile: Ints) -> tuple[Ints, Ints, Ints]:
    """Cut each of `sizes` into tiles of at most `tile`: whose each is, where in it, and how many."""
    tiles = -(-sizes // tile)
    whose = np.repeat(np.arange(len(sizes)), tiles)
    offsets = (np.arange(len(whose)) - (tiles.cumsum() - tiles)[whose]) * tile[whose]
    return whose, offsets, np.minimum(sizes[whose] - offsets, tile[whose])


def _ranges(starts: Ints, lengths: Ints) -> Ints:
    """`starts[i], starts[i] + 1, ...`, `lengths[i]` of them, for each i."""
    return np.arange(int(lengths.sum())) + np.repeat(starts - (lengths.cumsum() - lengths), lengths)


def _first_seen(starts: Ints, lowest_positions: Ints, window: int | None) -> Ints:
    return starts if window is None else np.maximum(starts, lowest_positions - window + 1)


def _pieces(keys: Ints, least: int, kv_heads: int, tiling: Tiling) -> Ints:
    """Into how many pieces each tile's keys are cut, so that the device's processors all have work."""
    wanted = tiling.processors * PROGRAMS_A_PROCESSOR
    length = max(least, -(-int(keys.sum()) * kv_heads // wanted))
    return np.maximum(-(-keys // length), 1)


def _items(tiles: _Tiles, pieces: Ints, block: int) -> tuple[Ints, Ints]:
    """[items, 6] as in `ItemList`, and the token of each part."""
    lengths = -(-(tiles.key_ends - tiles.key_starts) // (pieces * block)) * block
    tile, offsets, keys = _cut(tiles.key_ends - tiles.key_starts, lengths)
    # Of one tile all tokens have parts, or none has.
    tokens = tiles.entries[_ranges(tiles.first_entries[tile], tiles.counts[tile])]
    in_parts = np.bincount(tokens)[tiles.entries[tiles.first_entries[tile]]] > 1
    sizes = np.where(in_parts, tiles.counts[tile], 0)
    first_parts = np.where(in_parts, sizes.cumsum() - sizes, -1)
    starts = tiles.key_starts[tile] + offsets
    columns = (tiles.first_entries[tile], tiles.counts[tile], tiles.tables[tile], starts, starts + keys, first_parts)
    return np.stack(columns, axis=1), tokens[np.repeat(in_parts, tiles.counts[tile])]
