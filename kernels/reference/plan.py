"""What all layers of a step share: which blocks of keys each token reads, and which of their slots are hidden from it.

Keys are taken in blocks of `BLOCK` slots at absolute positions from 0, so that where a block begins and ends never
depends on how a prefix was computed or what else is in the batch.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from radixrt.kernels.interface import AttentionShape, BatchLayout
from radixrt.kernels.reference.kv_pool import run_indices, slot_indices

BLOCK = 256
"""Keys of one attention product. A longer block wastes work on short contexts, a shorter one costs more merging."""
QUERY_TILE = 16
"""Query rows of one attention product: the query heads that share a key head, of one or several tokens."""


@dataclass(frozen=True)
class DecodePlan:
    """The rows of one token, computed together.

    Rows are ordered by their number of blocks, most first, and (row, block) pairs by the block's rank among those that
    its row sees: pairs of rank j belong to the first `rank_rows[j]` rows.
    """

    tokens: Tensor
    """int64 [rows]: the rows' tokens in the step."""
    rank_rows: list[int]
    pair_rows: Tensor
    """int64 [pairs]"""
    runs: Tensor
    """int64 [pairs, kv_heads, runs of a block]"""
    hidden: Tensor
    """bool [pairs, 1, 1, BLOCK]"""


@dataclass(frozen=True)
class ChunkBlock:
    """One block of keys for one row of several tokens, and the tiles of query rows that see any of it."""

    runs: Tensor
    """int64 [kv_heads, runs of a block]"""
    first_tile: int
    end_tile: int
    hidden: Tensor | None
    """bool [end_tile - first_tile, QUERY_TILE, BLOCK]; None where every query sees every key."""


@dataclass(frozen=True)
class ChunkPlan:
    """One row of several tokens, `start` to `end` in the step."""

    start: int
    end: int
    tiles: int
    blocks: list[ChunkBlock]


@dataclass(frozen=True)
class AttentionPlan:
    """How one kind of attention layer reads the step's keys."""

    run_slots: int
    decode: DecodePlan | None
    chunks: list[ChunkPlan]


@dataclass
class ReferencePlan:
    """A step's layout, and what was derived from it for each kind of layer there is."""

    layout: BatchLayout
    _slots: dict[int, Tensor] = field(default_factory=dict)
    _attention: dict[AttentionShape, AttentionPlan] = field(default_factory=dict)

    def slots(self, kv_heads: int) -> Tensor:
        """Where the step's keys and values are written: see `slot_indices`."""
        if kv_heads not in self._slots:
            self._slots[kv_heads] = slot_indices(self.layout.slots, self.layout.page_size, kv_heads)
        return self._slots[kv_heads]

    def attention(self, shape: AttentionShape) -> AttentionPlan:
        """How layers of this shape read the step's keys."""
        if shape not in self._attention:
            self._attention[shape] = _plan_attention(self.layout, shape)
        return self._attention[shape]


def _plan_attention(layout: BatchLayout, shape: AttentionShape) -> AttentionPlan:
    counts = layout.query_starts.diff()
    # A group of heads larger than a tile does not fit the batch of one-token rows; as a chunk it takes several tiles.
    one_token = (counts == 1) & (shape.heads // shape.kv_heads <= QUERY_TILE)
    decode = torch.nonzero(one_token)[:, 0]
    return AttentionPlan(
        run_slots=min(layout.page_size, BLOCK),
        decode=_plan_decode(layout, shape, decode) if len(decode) else None,
        chunks=[_plan_chunk(layout, shape, row) for row in torch.nonzero(~one_token)[:, 0].tolist()],
    )


def _plan_decode(layout: BatchLayout, shape: AttentionShape, rows: Tensor) -> DecodePlan:
    positions = layout.context_lengths[rows].long() - 1
    first_blocks = _first_seen(positions, shape.window) // BLOCK
    counts, order = (positions // BLOCK + 1 - first_blocks).sort(descending=True, stable=True)
    rows, positions, first_blocks = rows[order], positions[order], first_blocks[order]
    rank_rows = [int((counts > rank).sum()) for rank in range(int(counts[0]))]
    pair_rows = torch.cat([torch.arange(n) for n in rank_rows])
    ranks = torch.arange(len(rank_rows)).repeat_interleave(torch.tensor(rank_rows))
    blocks = first_blocks[pair_rows] + ranks
    keys = blocks[:, None] * BLOCK + torch.arange(BLOCK)
    return DecodePlan(
        tokens=layout.query_starts[rows].long(),
        rank_rows=rank_rows,
        pair_rows=pair_rows,
        runs=_block_runs(layout, rows, shape.kv_heads)[pair_rows, blocks],
        hidden=_hidden(keys, positions[pair_rows, None], shape.window)[:, None, None],
    )


def _plan_chunk(layout: BatchLayout, shape: AttentionShape, row: int) -> ChunkPlan:
    start, end = layout.query_starts[row : row + 2].tolist()
    last = int(layout.context_lengths[row]) - 1
    first = last + 1 - (end - start)
    group = shape.heads // shape.kv_heads
    tiles = -(-(end - start) * group // QUERY_TILE)
    # The rows that fill the last tile stand at the last position; what they yield is dropped.
    positions = (first + torch.arange(tiles * QUERY_TILE) // group).clamp_(max=last).view(tiles, QUERY_TILE)
    runs = _block_runs(layout, torch.tensor([row]), shape.kv_heads)[0]
    blocks = []
    for block in range(int(_first_seen(positions[0, :1], shape.window)) // BLOCK, last // BLOCK + 1):
        keys = block * BLOCK + torch.arange(BLOCK)
        sees = (positions[:, -1] >= keys[0]) & (_first_seen(positions[:, 0], shape.window) <= keys[-1])
        seeing = torch.nonzero(sees)[:, 0]
        first_tile, end_tile = int(seeing[0]), int(seeing[-1]) + 1
        hidden = _hidden(keys, positions[first_tile:end_tile, :, None], shape.window)
        blocks.append(ChunkBlock(runs[block], first_tile, end_tile, hidden if hidden.any() else None))
    return ChunkPlan(start, end, tiles, blocks)


def _first_seen(positions: Tensor, window: int | None) -> Tensor:
    """The first position that each of these sees."""
    return torch.zeros_like(positions) if window is None else (positions - window + 1).clamp_(min=0)


def _hidden(keys: Tensor, positions: Tensor, window: int | None) -> Tensor:
    hidden = keys > positions
    return hidden if window is None else hidden | (keys <= positions - window)


def _block_runs(layout: BatchLayout, rows: Tensor, kv_heads: int) -> Tensor:
    """The runs that hold these rows' blocks: int64 [rows, blocks, kv_heads, runs of a block].

    Past a row's end they lead to page 0: what lies there is finite, and masked.
    """
    page_size, run_slots = layout.page_size, min(layout.page_size, BLOCK)
    lengths = layout.context_lengths[rows].long()
    blocks = (int(lengths.max()) - 1) // BLOCK + 1
    columns = torch.arange(-(-blocks * BLOCK // page_size))
    used = columns < (lengths[:, None] + page_size - 1) // page_size
    pages = torch.where(used, layout.page_starts[rows].long()[:, None] + columns, 0)
    table = torch.where(used, layout.pages[pages].long(), 0)
    runs = run_indices(table, page_size, run_slots, kv_heads)[:, :, : blocks * BLOCK // run_slots]
    return runs.unflatten(2, (blocks, -1)).transpose(1, 2).contiguous()
