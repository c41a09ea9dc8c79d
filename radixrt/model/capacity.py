"""The capacity formula: how much of a device's memory a model takes, and how many requests fit into the rest.

    page  = 2 * layers * page_size * kv_heads * head_dim * bytes of an element   (keys and values)
    pool  = memory * share - weights - workspace
    pages = pool / page

A request of n tokens takes pages for n, half a page more than it fills on average. What keeps one contiguous
reservation for each request instead takes the whole context length for it, whatever it comes to hold (Kwon et al. 2023,
"Efficient Memory Management for Large Language Model Serving with PagedAttention", section 3.1).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod

from radixrt.errors import InvalidRequest
from radixrt.model.config import ModelConfig
from radixrt.model.tensors import expected_shapes

ATTENTION_WORKSPACE = 608 * 2**20
"""Bytes of the buffers in which FlashInfer lays out a step's attention and keeps partial results (Triton needs less):
384 MiB for all of its wrappers, and 8 to 72 MiB for each of decode, prefill and a cascade's two levels."""
_HEAD_STEP = 16
"""Elements: heads of another size are stored up to the next multiple, as the native kernels want them."""


_FP8_STEP = 16
"""Elements: a matrix whose sizes are not multiples of this stays in 16 bits."""


@dataclass(frozen=True)
class Precision:
    """Bytes that numbers take. Vectors, the embedding and the head are kept in 16 bits."""

    name: str
    weight_bytes: int
    """Of an element of a layer's matrices; those of one byte have a float32 scale for each row."""
    kv_bytes: int
    """Of an element of the KV pool."""


PRECISIONS = (Precision("fp16, bf16", 2, 2), Precision("fp8 KV", 2, 1), Precision("fp8", 1, 1))


@dataclass(frozen=True, kw_only=True)
class Demand:
    """What is asked of the device. `check` says what is out of range."""

    memory: int
    """Bytes of the whole device."""
    context: int
    """Tokens of the longest request."""
    tokens: int
    """Tokens that a request holds at its end, on average: prompt and output."""
    shared: int = 0
    """How many of these are a prefix that all requests share: its whole pages are in the pool once."""
    concurrency: int | None = None
    """Requests of the longest kind for which the memory they need is wanted."""
    page_size: int = 16
    step_tokens: int = 8192
    max_running: int = 256
    share: float = 0.9
    """Of the memory: the rest is for the driver, its context, compiled kernels and fragmentation."""


@dataclass(frozen=True)
class Capacity:
    """What fits. Bytes, tokens and requests."""

    precision: str
    weights: int
    workspace: int
    page_bytes: int
    token_bytes: int
    pages: int
    full_requests: int
    """Requests of the whole context length that fit at once, none sharing anything."""
    requests: int
    """Requests of the average size that fit at once in pages."""
    reserved_requests: int
    """The same where each takes one contiguous reservation of the context length."""
    page_waste: float
    """Share of the slots that a request takes for itself in pages and does not fill."""
    reservation_waste: float
    """Share of a contiguous reservation that is not filled."""
    needed: int | None
    """Memory for `Demand.concurrency` requests of the whole context length."""

    @property
    def pool(self) -> int:
        """Bytes of the KV pool."""
        return self.pages * self.page_bytes


def page_bytes(config: ModelConfig, page_size: int, element_bytes: int) -> int:
    """Bytes of one page, keys and values of all layers together."""
    head = -(-config.head_dim // _HEAD_STEP) * _HEAD_STEP
    return 2 * config.layers * page_size * config.kv_heads * head * element_bytes


def weight_bytes(config: ModelConfig, precision: Precision) -> int:
    """Bytes of all weights."""
    total = 0
    for name, shape in expected_shapes(config).items():
        is_narrow = (
            precision.weight_bytes == 1
            and len(shape) == 2
            and ".layers." in name
            and not any(size % _FP8_STEP for size in shape)
        )
        total += prod(shape) + 4 * shape[0] if is_narrow else 2 * prod(shape)
    return total


def workspace_bytes(config: ModelConfig, demand: Demand) -> int:
    """Bytes that a step needs beside weights and KV: activations, logits, attention's buffers, the rotary table."""
    q, kv = config.heads * config.head_dim, config.kv_heads * config.head_dim
    # The residual and its norm live through a layer; q, k, v with the rotated q and the output give way to gate, up and
    # their product.
    activations = 2 * demand.step_tokens * (2 * config.hidden + max(3 * q + 2 * kv, 3 * config.intermediate))
    # float32, and once more for what sampling makes of them.
    logits = 2 * 4 * demand.max_running * config.vocabulary_size
    return activations + logits + ATTENTION_WORKSPACE + 4 * demand.context * config.head_dim


def plan_capacity(config: ModelConfig, demand: Demand, precision: Precision) -> Capacity:
    """What fits in one precision: no page, if the weights and the workspace leave no room. Raises `InvalidRequest`."""
    check(config, demand)
    weights, workspace = weight_bytes(config, precision), workspace_bytes(config, demand)
    size = page_bytes(config, demand.page_size, precision.kv_bytes)
    pages = max(0, int(demand.memory * demand.share) - weights - workspace) // size
    shared_pages = demand.shared // demand.page_size
    own = demand.tokens - shared_pages * demand.page_size
    half_a_page = (demand.page_size - 1) / 2
    reservation = -(-demand.context // demand.page_size)
    return Capacity(
        precision=precision.name,
        weights=weights,
        workspace=workspace,
        page_bytes=size,
        token_bytes=size // demand.page_size,
        pages=pages,
        full_requests=pages // reservation,
        requests=int(max(0, pages - shared_pages) * demand.page_size / (own + half_a_page)),
        reserved_requests=pages * demand.page_size // demand.context,
        page_waste=half_a_page / (own + half_a_page),
        reservation_waste=1 - demand.tokens / demand.context,
        needed=(
            None
            if demand.concurrency is None
            else ceil((weights + workspace + demand.concurrency * reservation * size) / demand.share)
        ),
    )


def check(config: ModelConfig, demand: Demand) -> None:
    """Raise `InvalidRequest`, naming the field, for a demand that is out of range."""
    for field in ("memory", "context", "tokens", "step_tokens", "max_running"):
        if getattr(demand, field) < 1:
            raise InvalidRequest(f"{field} is {getattr(demand, field)}; it must be at least 1", field=field)
    if demand.concurrency is not None and demand.concurrency < 1:
        raise InvalidRequest(f"concurrency is {demand.concurrency}; it must be at least 1", field="concurrency")
    size = demand.page_size
    if size < 1 or size & (size - 1):
        raise InvalidRequest(f"page_size is {size}; it must be a power of two", field="page_size")
    if not 0 < demand.share <= 1:
        raise InvalidRequest(f"share is {demand.share}; it must be above 0 and at most 1", field="share")
    if demand.context > config.max_positions:
        raise InvalidRequest(
            f"context is {demand.context:,}; the model was made for at most {config.max_positions:,} tokens",
            field="context",
        )
    if demand.tokens > demand.context:
        raise InvalidRequest(
            f"tokens is {demand.tokens:,}, more than the context of {demand.context:,}", field="tokens"
        )
    if not 0 <= demand.shared < demand.tokens:
        raise InvalidRequest(
            f"shared is {demand.shared:,}; it must be at least 0 and below the {demand.tokens:,} tokens of a request",
            field="shared",
        )
