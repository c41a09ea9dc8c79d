"""What all layers of a step share: which blocks of keys each token reads, and which of their slots are hidden from it.

Keys are taken in blocks at absolute positions from 0, so that where a block begins and ends never depends on how a
prefix was computed or what else is in the batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from radixrt.kernels.interface import AttentionShape, BatchLayout
from radixrt.kernels.reference.kv_pool import BLOCK, BlockReader, head_slots, run_slots

QUERY_TILE = 16
"""Query rows of one attention product: the query heads that share a key head, of one or several tokens."""
CHUNK_TILES = 64
"""Tiles that go over a block together: few steps, while their scores are still found in cache."""
READ_BYTES = 2**20
"""Float32 keys that one-token rows take at a time: what a core's second-level cache holds beside values and scores."""


@dataclass(frozen=True)
class DecodePlan:
    """The rows of one token, computed together.

    Rows are ordered by the number of blocks they see, most first. A pair is a row and one of its blocks; pairs are in
    the order of their tiles. Rows whose block lies in the same pages share a tile as far as it has room, so that a
    prefix that many requests share is read once for several of them.
    """

    tokens: Tensor
    """int64 [rows]: the rows' tokens in the step."""
    tile_runs: Tensor
    """int64 [tiles, runs of a block]"""
    tile_pairs: list[int]
    """[tiles]: pairs of each tile."""
    pair_rows: Tensor
    """int64 [pairs]"""
    pair_tiles: Tensor
    """int64 [pairs]"""
    pair_places: Tensor
    """int64 [pairs]: place among the rows that a tile has room for."""
    hidden: Tensor
    """bool [pairs, 1, 1, BLOCK]"""
    by_rank: Tensor
    """int64 [pairs]: the pairs in the order of merging, first each row's first block, then each row's second."""
    rank_rows: list[int]
    """For each rank j, the number of rows that see more than j blocks."""


@dataclass(frozen=True)
class ChunkBlock:
    """One block of keys for the tokens of a chunk, and the tiles of query rows that see any of it."""

    runs: Tensor
    """int64 [1, runs of a block]"""
    first_tile: int
    end_tile: int
    hidden: Tensor | None
    """bool [end_tile - first_tile, QUERY_TILE, BLOCK]; None where every query sees every key."""


@dataclass(frozen=True)
class ChunkPlan:
    """Tokens of one row, `start` to `end` in the step."""

    start: int
    end: int
    tiles: int
    blocks: list[ChunkBlock]


@dataclass(frozen=True)
class AttentionPlan:
    """How one kind of attention layer reads the step's keys."""

    keys: BlockReader
    values: BlockReader
    blocks_at_a_time: int
    decode: DecodePlan | None
    chunks: list[ChunkPlan]


@dataclass
class ReferencePlan:
    """A step's layout, and what was derived from it for each kind of layer there is."""

    layout: BatchLayout
    dtype: torch.dtype
    """Of the pool."""
    _head_slots: dict[int, Tensor] = field(default_factory=dict)
    _attention: dict[AttentionShape, AttentionPlan] = field(default_factory=dict)

    def head_slots(self, kv_heads: int) -> Tensor:
        """Where the step's keys and values are written: see `kv_pool.head_slots`."""
        if kv_heads not in self._head_slots:
            self._head_slots[kv_heads] = head_slots(self.layout.slots, self.layout.page_size, kv_heads)
        return self._head_slots[kv_heads]

    def attention(self, shape: AttentionShape) -> AttentionPlan:
        """How layers of this shape read the step's keys."""
        if shape not in self._attention:
            self._attention[shape] = _plan_attention(self.layout, shape, self.dtype)
        return self._attention[shape]


def _plan_attention(layout: BatchLayout, shape: AttentionShape, dtype: torch.dtype) -> AttentionPlan:
    group = shape.heads // shape.kv_heads
    # A group of heads larger than a tile does not fit the batch of one-token rows; as a chunk it takes several tiles.
    together = (layout.query_starts.diff() == 1) & (group <= QUERY_TILE)
    decode, chunks = torch.nonzero(together)[:, 0], torch.nonzero(~together)[:, 0]
    blocks = max(1, READ_BYTES // (4 * shape.kv_heads * BLOCK * shape.head_dim))
    keys, values = (
        BlockReader(blocks, layout.page_size, shape.kv_heads, shape.head_dim, dtype) for _ in ("keys", "values")
    )
    return AttentionPlan(
        keys,
        values,
        blocks,
        decode=_plan_decode(layout, decode, QUERY_TILE // group, shape.window) if len(decode) else None,
        chunks=[chunk for row in chunks.tolist() for chunk in _plan_chunks(layout, row, group, shape.window)],
    )


def _plan_decode(layout: BatchLayout, rows: Tensor, room: int, window: int | None) -> DecodePlan:
    positions = layout.context_lengths[rows].long() - 1
    first_blocks = _first_seen(positions, window) // BLOCK
    counts, order = (positions // BLOCK + 1 - first_blocks).sort(descending=True, stable=True)
    rows, positions, first_blocks = rows[order], positions[order], first_blocks[order]

    rank_rows = [int((counts > rank).sum()) for rank in range(int(counts[0]))]
    pair_rows = torch.cat([torch.arange(n) for n in rank_rows])
    ranks = torch.arange(len(rank_rows)).repeat_interleave(torch.tensor(rank_rows))
    blocks = first_blocks[pair_rows] + ranks

    runs = _block_runs(layout, rows)[pair_rows, blocks]
    distinct, which, sharers = runs.unique(dim=0, return_inverse=True, return_counts=True)
    tiles_of_distinct = (sharers + room - 1) // room
    by_tile = which.argsort(stable=True)
    which = which[by_tile]
    places = torch.arange(len(which)) - (sharers.cumsum(0) - sharers)[which]
    pair_tiles = (tiles_of_distinct.cumsum(0) - tiles_of_distinct)[which] + places // room

    keys = blocks[by_tile, None] * BLOCK + torch.arange(BLOCK)
    pair_rows = pair_rows[by_tile]
    return DecodePlan(
        tokens=layout.query_starts[rows].long(),
        tile_runs=distinct.repeat_interleave(tiles_of_distinct, dim=0),
        tile_pairs=pair_tiles.bincount().tolist(),
        pair_rows=pair_rows,
        pair_tiles=pair_tiles,
        pair_places=places % room,
        hidden=_hidden(keys, positions[pair_rows, None], window)[:, None, None],
        by_rank=by_tile.argsort(),
        rank_rows=rank_rows,
    )


def _plan_chunks(layout: BatchLayout, row: int, group: int, window: int | None) -> Iterator[ChunkPlan]:
    start, end = layout.query_starts[row : row + 2].tolist()
    first = int(layout.context_lengths[row]) - (end - start)
    runs = _block_runs(layout, torch.tensor([row]))[0]
    tokens = max(1, CHUNK_TILES * QUERY_TILE // group)
    for offset in range(0, end - start, tokens):
        chunk_end = min(start + offset + tokens, end)
        yield _plan_chunk(start + offset, chunk_end, first + offset, runs, group, window)


def _plan_chunk(start: int, end: int, first: int, runs: Tensor, group: int, window: int | None) -> ChunkPlan:
    last = first + (end - start) - 1
    tiles = -(-(end - start) * group // QUERY_TILE)
    # The rows that fill the last tile stand at the last position; what they yield is dropped.
    positions = (first + torch.arange(tiles * QUERY_TILE) // group).clamp_(max=last).view(tiles, QUERY_TILE)
    blocks = []
    for block in range(int(_first_seen(positions[0, :1], window)) // BLOCK, last // BLOCK + 1):
        keys = block * BLOCK + torch.arange(BLOCK)
        sees = (positions[:, -1] >= keys[0]) & (_first_seen(positions[:, 0], window) <= keys[-1])
        seeing = torch.nonzero(sees)[:, 0]
        first_tile, end_tile = int(seeing[0]), int(seeing[-1]) + 1
        hidden = _hidden(keys, positions[first_tile:end_tile, :, None], window)
        blocks.append(ChunkBlock(runs[block, None], first_tile, end_tile, hidden if hidden.any() else None))
    return ChunkPlan(start, end, tiles, blocks)


def _first_seen(positions: Tensor, window: int | None) -> Tensor:
    """The first position that each of these sees."""
    return torch.zeros_like(positions) if window is None else (positions - window + 1).clamp_(min=0)


def _hidden(keys: Tensor, positions: Tensor, window: int | None) -> Tensor:
    hidden = keys > positions
    return hidden if window is None else hidden | (keys <= positions - window)


def _block_runs(layout: BatchLayout, rows: Tensor) -> Tensor:
    """The runs of the pool that hold these rows' blocks: int64 [rows, blocks, runs of a block].

    Past a row's end they lead to page 0: what lies there is finite, and hidden.
    """
    page_size, length = layout.page_size, run_slots(layout.page_size)
    lengths = layout.context_lengths[rows, None].long()
    blocks = (int(lengths.max()) - 1) // BLOCK + 1
    runs = torch.arange(blocks * BLOCK // length)
    columns = runs * length // page_size
    used = columns * page_size < lengths
    pages = layout.pages[torch.where(used, layout.page_starts[rows, None].long() + columns, 0)].long()
    parts = page_size // length
    return torch.where(used, pages * parts + runs % parts, 0).unflatten(1, (blocks, -1))
