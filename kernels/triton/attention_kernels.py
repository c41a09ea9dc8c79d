"""Paged attention on the device: items of a work list, then the merge of what they left in parts.

An item is a tile of query rows over a range of keys. Its softmax is online over blocks of keys (FlashAttention-2, Dao
2023), in base 2, with scores, weights and sums in float32. A token whose keys are spread over several items (a shared
prefix and its own rest, or one long context cut up) gets its parts merged by their logarithms of the sum of weights
(FlashDecoding; cascade inference).
"""

import triton
import triton.language as tl

from radixrt.kernels.triton.rounding_kernels import product, rounded


@triton.jit
def attend_items(
    q,
    kv,
    out,
    part_values,
    part_weights,
    items,
    entries,
    positions,
    pages,
    scale,  # with log2(e) in it
    window,
    heads,
    q_token_stride,
    q_head_stride,
    page_stride,
    value_offset,
    slot_stride,
    head_stride,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PAGE_SIZE: tl.constexpr,
    WINDOWED: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    DIM: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """One item, one key head: the query heads that share it, of up to ROWS // GROUP tokens, are the tile's rows.

    An item of no tokens and no keys does nothing: a list may be filled up to a length that a captured graph expects.
    """
    item = items + tl.program_id(0) * 6
    first_entry, count, table = tl.load(item), tl.load(item + 1), tl.load(item + 2)
    key, key_end, first_part = tl.load(item + 3), tl.load(item + 4), tl.load(item + 5)
    kv_head = tl.program_id(1)

    row, dim = tl.arange(0, ROWS), tl.arange(0, DIM)
    place = row // GROUP
    head = kv_head * GROUP + row % GROUP
    real = place < count
    token = tl.load(entries + first_entry + place, mask=real, other=0)
    position = tl.load(positions + token, mask=real, other=-1)
    in_q = real[:, None] & (dim < HEAD_DIM)[None, :]
    q_row = token.to(tl.int64) * q_token_stride + head * q_head_stride
    query = tl.load(q + q_row[:, None] + dim[None, :], mask=in_q, other=0.0)

    top = tl.full([ROWS], float("-inf"), tl.float32)
    weight = tl.zeros([ROWS], tl.float32)
    values = tl.zeros([ROWS, DIM], tl.float32)
    keys = kv + kv_head * head_stride
    if not WINDOWED:
        # Blocks that every row sees whole need no mask.
        seen_by_all = tl.minimum(tl.min(tl.where(real, position, 2147483647)) + 1, key_end)
        whole = key + tl.maximum(seen_by_all - key, 0) // KEYS * KEYS
        for start in tl.range(key, whole, KEYS):
            top, weight, values = _take_block(
                query, top, weight, values, keys, pages + table, start, key_end, position, scale, window,
                page_stride, value_offset, slot_stride, HEAD_DIM, PAGE_SIZE, False, WINDOWED, KEYS, DIM, INTERPRETED,
            )  # fmt: skip
        key = whole
    for start in tl.range(key, key_end, KEYS):
        top, weight, values = _take_block(
            query, top, weight, values, keys, pages + table, start, key_end, position, scale, window,
            page_stride, value_offset, slot_stride, HEAD_DIM, PAGE_SIZE, True, WINDOWED, KEYS, DIM, INTERPRETED,
        )  # fmt: skip

    # A row that sees none of the item's keys has weight 0.
    divisor = tl.where(weight > 0, weight, 1.0)
    values = values / divisor[:, None]
    if first_part < 0:
        place_out = token.to(tl.int64) * heads + head
        tl.store(
            out + place_out[:, None] * HEAD_DIM + dim[None, :],
            rounded(values, out.dtype.element_ty, INTERPRETED),
            mask=in_q,
        )
    else:
        part = (first_part + place).to(tl.int64) * heads + head
        tl.store(part_values + part[:, None] * HEAD_DIM + dim[None, :], values, mask=in_q)
        tl.store(part_weights + part, tl.where(weight > 0, top + tl.log2(divisor), float("-inf")), mask=real)


@triton.jit
def _take_block(
    query,
    top,
    weight,
    values,
    keys,
    table,
    start,
    key_end,
    position,
    scale,
    window,
    page_stride,
    value_offset,
    slot_stride,
    HEAD_DIM: tl.constexpr,
    PAGE_SIZE: tl.constexpr,
    MASKED: tl.constexpr,
    WINDOWED: tl.constexpr,
    KEYS: tl.constexpr,
    DIM: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """The softmax so far (maximum, sum of weights, weighted values) with the block of keys from `start` taken in."""
    dim = tl.arange(0, DIM)
    key = start + tl.arange(0, KEYS)
    there = key < key_end
    page = tl.load(table + key // PAGE_SIZE, mask=there, other=0)
    slot = page.to(tl.int64) * page_stride + (key % PAGE_SIZE) * slot_stride
    # A slot past the end is not read: it may hold anything, and 0 times infinity is no 0.
    in_k = there[None, :] & (dim < HEAD_DIM)[:, None]
    in_v = there[:, None] & (dim < HEAD_DIM)[None, :]
    block_keys = tl.load(keys + slot[None, :] + dim[:, None], mask=in_k, other=0.0).to(query.dtype)
    scores = product(query, block_keys, INTERPRETED) * scale
    if MASKED:
        visible = (key[None, :] <= position[:, None]) & there[None, :]
        if WINDOWED:
            visible = visible & (key[None, :] > position[:, None] - window)
        scores = tl.where(visible, scores, float("-inf"))
    new_top = tl.maximum(top, tl.max(scores, 1))
    # Before a row has seen any key its maximum is -infinity, which must not be taken from itself.
    base = tl.where(new_top == float("-inf"), 0.0, new_top)
    shrink = tl.exp2(top - base)
    weights = tl.exp2(scores - base[:, None])
    block_values = tl.load(keys + value_offset + slot[:, None] + dim[None, :], mask=in_v, other=0.0).to(query.dtype)
    weight = weight * shrink + tl.sum(weights, 1)
    values = values * shrink[:, None] + product(rounded(weights, query.dtype, INTERPRETED), block_values, INTERPRETED)
    return new_top, weight, values


@triton.jit
def merge_parts(
    part_values,
    part_weights,
    out,
    merged_tokens,
    part_starts,
    parts,
    heads,
    HEAD_DIM: tl.constexpr,
    PARTS: tl.constexpr,
    DIM: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """One token, one head: its parts, PARTS at a time. Where a token has no parts nothing is written."""
    token = tl.load(merged_tokens + tl.program_id(0)).to(tl.int64)
    first, end = tl.load(part_starts + tl.program_id(0)), tl.load(part_starts + tl.program_id(0) + 1)
    head = tl.program_id(1)
    dim = tl.arange(0, DIM)
    top = tl.full([], float("-inf"), tl.float32)
    weight = tl.full([], 0.0, tl.float32)
    values = tl.zeros([DIM], tl.float32)
    for start in tl.range(first, end, PARTS):
        index = start + tl.arange(0, PARTS)
        there = index < end
        part = tl.load(parts + index, mask=there, other=0).to(tl.int64) * heads + head
        log_weights = tl.load(part_weights + part, mask=there, other=float("-inf"))
        in_part = there[:, None] & (dim < HEAD_DIM)[None, :]
        part_of = tl.load(part_values + part[:, None] * HEAD_DIM + dim[None, :], mask=in_part, other=0.0)
        new_top = tl.maximum(top, tl.max(log_weights, 0))
        base = tl.where(new_top == float("-inf"), 0.0, new_top)
        shrink = tl.exp2(top - base)
        weights = tl.exp2(log_weights - base)
        values = values * shrink + tl.sum(weights[:, None] * part_of, 0)
        weight = weight * shrink + tl.sum(weights, 0)
        top = new_top
    place = out + (token * heads + head) * HEAD_DIM + dim
    whole = rounded(values / tl.where(first < end, weight, 1.0), out.dtype.element_ty, INTERPRETED)
    tl.store(place, whole, mask=dim < tl.where(first < end, HEAD_DIM, 0))
