"""The operations around attention and the linear maps, on the device: float32 inside, rounded once.

Numbers of tokens are not specialised: Triton would compile a kernel anew for one, and for multiples of 16.
"""

import triton
import triton.language as tl

from radixrt.kernels.triton.rounding_kernels import rounded, widened


@triton.jit(do_not_specialize=["rows"])
def rms_norm_rows(
    x,
    residual,
    weight,
    out,
    total,
    rows,
    inner,  # rows are numbered through two leading dimensions, the second of this size
    outer_stride,
    inner_stride,
    width,
    eps,
    ADD: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """`x`, or `x + residual`, which is kept in `total`, over its root mean square, times `weight`."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)
    inside = (row < rows)[:, None] & (column < width)[None, :]
    place = (row // inner).to(tl.int64) * outer_stride + row % inner * inner_stride
    value = widened(tl.load(x + place[:, None] + column[None, :], mask=inside, other=0.0), INTERPRETED)
    packed = row.to(tl.int64)[:, None] * width + column[None, :]
    if ADD:
        added = value + widened(tl.load(residual + packed, mask=inside, other=0.0), INTERPRETED)
        # The norm is that of the sum as it is kept.
        kept = rounded(added, total.dtype.element_ty, INTERPRETED)
        tl.store(total + packed, kept, mask=inside)
        value = widened(kept, INTERPRETED)
    inverse = tl.rsqrt(tl.sum(value * value, 1) / width + eps)
    scale = widened(tl.load(weight + column, mask=column < width, other=0.0), INTERPRETED)
    normed = value * inverse[:, None] * scale[None, :]
    tl.store(out + packed, rounded(normed, out.dtype.element_ty, INTERPRETED), mask=inside)


@triton.jit(do_not_specialize=["rows"])
def silu_multiply_rows(
    gate_up,
    out,
    rows,
    width,
    row_stride,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """`silu(gate) * up`, gate in the first half of a row."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (row < rows)[:, None] & (column < width)[None, :]
    place = gate_up + row.to(tl.int64)[:, None] * row_stride + column[None, :]
    gate = widened(tl.load(place, mask=inside, other=0.0), INTERPRETED)
    up = widened(tl.load(place + width, mask=inside, other=0.0), INTERPRETED)
    # exp(-|gate|) never overflows.
    small = tl.exp(-tl.abs(gate))
    sigmoid = tl.where(gate >= 0, 1.0, small) / (1.0 + small)
    packed = out + row.to(tl.int64)[:, None] * width + column[None, :]
    tl.store(packed, rounded(gate * sigmoid * up, out.dtype.element_ty, INTERPRETED), mask=inside)


@triton.jit(do_not_specialize=["tokens"])
def rotary_write(
    q,
    k,
    v,
    cos_sin,
    kv,
    out,
    positions,
    slots,
    tokens,
    heads,
    kv_heads,
    q_token_stride,
    q_head_stride,
    k_token_stride,
    k_head_stride,
    v_token_stride,
    v_head_stride,
    page_stride,
    value_offset,
    slot_stride,
    head_stride,
    HEAD_DIM: tl.constexpr,
    HALF: tl.constexpr,
    PAGE_SIZE: tl.constexpr,
    ROWS: tl.constexpr,
    DIM: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """Rows are heads of tokens. The first programs rotate queries into `out`, the others write keys and values."""
    query_programs = tl.cdiv(tokens * heads, ROWS)
    row, dim = tl.arange(0, ROWS), tl.arange(0, DIM)
    if tl.program_id(0) < query_programs:
        row = tl.program_id(0) * ROWS + row
        token, head, there = row // heads, row % heads, row < tokens * heads
        source = q + token.to(tl.int64) * q_token_stride + head * q_head_stride
        turned = _turned(source, token, there, cos_sin, positions, HEAD_DIM, HALF, DIM, INTERPRETED)
        target = out + row.to(tl.int64) * HEAD_DIM
        inside = there[:, None] & (dim < HEAD_DIM)[None, :]
        tl.store(target[:, None] + dim[None, :], rounded(turned, out.dtype.element_ty, INTERPRETED), mask=inside)
    else:
        row = (tl.program_id(0) - query_programs) * ROWS + row
        token, head, there = row // kv_heads, row % kv_heads, row < tokens * kv_heads
        slot = tl.load(slots + token, mask=there, other=-1)
        # A token that only fills a step up has no slot.
        there = there & (slot >= 0)
        page = (slot // PAGE_SIZE).to(tl.int64)
        place = kv + page * page_stride + (slot % PAGE_SIZE) * slot_stride + head * head_stride
        inside = there[:, None] & (dim < HEAD_DIM)[None, :]
        source = k + token.to(tl.int64) * k_token_stride + head * k_head_stride
        turned = _turned(source, token, there, cos_sin, positions, HEAD_DIM, HALF, DIM, INTERPRETED)
        tl.store(place[:, None] + dim[None, :], rounded(turned, kv.dtype.element_ty, INTERPRETED), mask=inside)
        source = v + token.to(tl.int64) * v_token_stride + head * v_head_stride
        value = widened(tl.load(source[:, None] + dim[None, :], mask=inside, other=0.0), INTERPRETED)
        place += value_offset
        tl.store(place[:, None] + dim[None, :], rounded(value, kv.dtype.element_ty, INTERPRETED), mask=inside)


@triton.jit
def _turned(
    source,
    token,
    there,
    cos_sin,
    positions,
    HEAD_DIM: tl.constexpr,
    HALF: tl.constexpr,
    DIM: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """Heads from `source` on, rotated by their tokens' positions: float32 [rows, DIM].

    Elements i and i + HALF are turned together: (a, b) -> (a cos - b sin, b cos + a sin).
    """
    dim = tl.arange(0, DIM)
    inside = there[:, None] & (dim < HEAD_DIM)[None, :]
    partner = tl.where(dim < HALF, dim + HALF, tl.where(dim < 2 * HALF, dim - HALF, dim))
    value = widened(tl.load(source[:, None] + dim[None, :], mask=inside, other=0.0), INTERPRETED)
    other = widened(tl.load(source[:, None] + partner[None, :], mask=inside, other=0.0), INTERPRETED)
    position = tl.load(positions + token, mask=there, other=0).to(tl.int64)
    angle = cos_sin + position[:, None] * (2 * HALF) + tl.where(dim < HALF, dim, dim - HALF)[None, :]
    rotated = inside & (dim < 2 * HALF)[None, :]
    cos = tl.load(angle, mask=rotated, other=1.0)
    sin = tl.load(angle + HALF, mask=rotated, other=0.0)
    return value * cos + other * tl.where(dim[None, :] < HALF, -sin, sin)
