"""Paged causal attention with an online softmax over blocks of keys.

Each block of keys yields a partial softmax (maximum, sum of weights, weighted values), a function of the query and of
that block alone; partials are merged from the first block to the last (Milakov and Gimelshein 2018; the block form is
FlashAttention's, Dao et al. 2022). Rows of one token compute the partials of all their blocks at once
(FlashDecoding) and merge them in the same order, so that a token's result is the same bits in either way. Scores,
weights and sums are float32 whatever the pool's dtype.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from radixrt.kernels.interface import AttentionShape
from radixrt.kernels.reference.kv_pool import BLOCK
from radixrt.kernels.reference.plan import QUERY_TILE, AttentionPlan, ChunkPlan, DecodePlan

LOWEST = torch.finfo(torch.float32).min / 2
"""Stands in for the maximum of no scores: finite, so that subtracting it from itself is 0 and not NaN."""


@dataclass(frozen=True)
class Partial:
    """Softmax over some of the keys: `top` and `weight` float32 [..., 1], `values` float32 [..., head_dim]."""

    top: Tensor
    weight: Tensor
    values: Tensor

    @classmethod
    def empty(cls, *size: int, head_dim: int) -> Partial:
        """Over no keys."""
        return cls(torch.full((*size, 1), LOWEST), torch.zeros(*size, 1), torch.zeros(*size, head_dim))

    def merge(self, other: Partial) -> None:
        """Take in the keys of the block that follows, in place. A block that is hidden whole changes no bit."""
        top = torch.maximum(self.top, other.top)
        old, new = (self.top - top).exp_(), (other.top - top).exp_()
        self.weight.mul_(old).add_(other.weight * new)
        self.values.mul_(old).add_(other.values * new)
        self.top.copy_(top)

    def result(self) -> Tensor:
        # A sum can end as -0.0 or, after one more hidden block, as 0.0: adding 0.0 makes them one.
        return (self.values / self.weight).add_(0.0)


def attend(q: Tensor, keys: Tensor, values: Tensor, plan: AttentionPlan, shape: AttentionShape) -> Tensor:
    """[T, heads, head_dim] over one layer's pool `[runs, kv_heads, run_slots, head_dim]`, in q's dtype."""
    out = torch.empty(q.shape, dtype=q.dtype)
    # [T, kv_heads, group, head_dim]
    scaled = (q.float() * shape.scale).unflatten(1, (shape.kv_heads, -1))
    if plan.decode is not None:
        tokens = plan.decode.tokens
        out[tokens] = _attend_decode(scaled[tokens], keys, values, plan, plan.decode).flatten(1, 2).to(q.dtype)
    for chunk in plan.chunks:
        own = slice(chunk.start, chunk.end)
        out[own] = _attend_chunk(scaled[own], keys, values, plan, chunk).flatten(1, 2)
    return out


def _attend_decode(q: Tensor, keys: Tensor, values: Tensor, plan: AttentionPlan, decode: DecodePlan) -> Tensor:
    """[rows, kv_heads, group, head_dim] -> the same shape."""
    rows, kv_heads, group, head_dim = q.shape
    tiles = q.new_zeros(len(decode.tile_runs), kv_heads, QUERY_TILE, head_dim)
    _places(tiles, group)[decode.pair_tiles, :, decode.pair_places] = q[decode.pair_rows]
    partials: list[tuple[Tensor, Tensor, Tensor]] = []
    end = 0
    for first in range(0, len(tiles), plan.blocks_at_a_time):
        own = slice(first, first + plan.blocks_at_a_time)
        start, end = end, end + sum(decode.tile_pairs[own])
        where = (decode.pair_tiles[start:end] - first, slice(None), decode.pair_places[start:end])
        block_keys = plan.keys.read(keys, decode.tile_runs[own])
        block_values = plan.values.read(values, decode.tile_runs[own])
        partials.append(_decode_partials(tiles[own], block_keys, block_values, where, decode.hidden[start:end], group))
    top, weight, weighted = (torch.cat(parts)[decode.by_rank] for parts in zip(*partials, strict=True))
    total = Partial.empty(rows, kv_heads, group, head_dim=head_dim)
    end = 0
    for count in decode.rank_rows:
        start, end = end, end + count
        own_rows = Partial(total.top[:count], total.weight[:count], total.values[:count])
        own_rows.merge(Partial(top[start:end], weight[start:end], weighted[start:end]))
    return total.result()


def _decode_partials(
    tiles: Tensor, keys: Tensor, values: Tensor, where: tuple[Tensor, slice, Tensor], hidden: Tensor, group: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Tiles [tiles, kv_heads, QUERY_TILE, head_dim], each over its block [tiles, kv_heads, BLOCK, head_dim].

    `where` leads from a pair to its place in a tile. Returns top, weight and weighted values of each pair.
    """
    scores = torch.bmm(tiles.flatten(0, 1), keys.flatten(0, 1).transpose(1, 2)).view(*tiles.shape[:3], BLOCK)
    real = _places(scores, group)[where].masked_fill_(hidden, -torch.inf)
    top = real.amax(-1, keepdim=True).clamp_(min=LOWEST)
    weights = real.sub_(top).exp_()
    _places(scores, group)[where] = weights
    weighted = torch.bmm(scores.flatten(0, 1), values.flatten(0, 1)).view(tiles.shape)
    return top, weights.sum(-1, keepdim=True), _places(weighted, group)[where]


def _places(tiles: Tensor, group: int) -> Tensor:
    """[tiles, kv_heads, QUERY_TILE, n] as [tiles, kv_heads, places, group, n], without the rows that are left over."""
    places = QUERY_TILE // group
    return tiles[:, :, : places * group].unflatten(2, (places, group))


def _attend_chunk(q: Tensor, keys: Tensor, values: Tensor, plan: AttentionPlan, chunk: ChunkPlan) -> Tensor:
    """[tokens, kv_heads, group, head_dim] -> the same shape."""
    tokens, kv_heads, group, head_dim = q.shape
    tiles = q.new_zeros(kv_heads, chunk.tiles * QUERY_TILE, head_dim)
    tiles[:, : tokens * group] = q.transpose(0, 1).flatten(1, 2)
    tiles = tiles.view(kv_heads, chunk.tiles, QUERY_TILE, head_dim)
    total = Partial.empty(kv_heads, chunk.tiles, QUERY_TILE, head_dim=head_dim)
    for block in chunk.blocks:
        seeing = slice(block.first_tile, block.end_tile)
        (block_keys,), (block_values,) = plan.keys.read(keys, block.runs), plan.values.read(values, block.runs)
        own = Partial(total.top[:, seeing], total.weight[:, seeing], total.values[:, seeing])
        own.merge(_chunk_partial(tiles[:, seeing], block_keys, block_values, block.hidden))
    rows = total.result().flatten(1, 2)[:, : tokens * group]
    return rows.unflatten(1, (tokens, group)).transpose(0, 1)


def _chunk_partial(tiles: Tensor, keys: Tensor, values: Tensor, hidden: Tensor | None) -> Partial:
    """Tiles [kv_heads, tiles, QUERY_TILE, head_dim] over one block [kv_heads, BLOCK, head_dim]."""
    scores = _multiply(tiles, keys.transpose(1, 2))
    if hidden is not None:
        scores.masked_fill_(hidden, -torch.inf)
    top = scores.amax(-1, keepdim=True).clamp_(min=LOWEST)
    weights = scores.sub_(top).exp_()
    return Partial(top, weights.sum(-1, keepdim=True), _multiply(weights, values))


def _multiply(tiles: Tensor, block: Tensor) -> Tensor:
    """Each head's tiles by that head's block: [heads, tiles, rows, n] x [heads, n, m] -> [heads, tiles, rows, m]."""
    out = tiles.new_empty(*tiles.shape[:3], block.shape[-1])
    for own, matrix, product in zip(tiles, block, out, strict=True):
        # The block is repeated with a stride of 0; one product over all heads would copy it for every tile.
        torch.bmm(own, matrix.expand(len(own), -1, -1), out=product)
    return out
