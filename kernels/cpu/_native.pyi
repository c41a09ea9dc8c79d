from collections.abc import Callable
from typing import Any

def levels() -> list[str]:
    """Kinds of processor that kernels were compiled for and that this one runs, best first."""

class Packed:
    """Where a packed weight lies and what it holds: see src/matmul.hpp. Raises ValueError for an unknown format."""

    def __init__(self, data: int, format: str, outputs: int, inner: int, int8_activations: bool) -> None: ...
    @property
    def bytes(self) -> int: ...

BLOCK_KEYS: int
TILE_ROWS: int
ITEM_ROWS: int
MAX_HEAD_DIM: int

class KvPool:
    """The native view of a pool: see src/kv_pool.hpp."""

    def __init__(self, data: int, layers: int, pages: int, page_size: int, kv_heads: int, head_dim: int, /) -> None: ...

class Plan:
    """A step's work: see src/plan.hpp. Takes the addresses and sizes of a `BatchLayout`."""

    def __init__(self, *numbers: int) -> None: ...
    def items(self, heads: int, kv_heads: int, window: int, /) -> list[tuple[int, int, list[tuple[int, int]]]]:
        """Of each item: first block, end block and, for each of its tiles, query rows and shared tiles of keys."""

class Part:
    """Some of a projection's outputs: a weight and the address of its bias, or 0."""

    def __init__(self, weight: Packed, bias: int, /) -> None: ...

class LayerWeights:
    """One block of a decoder: see src/decoder.hpp. Vectors are addresses."""

    def __init__(
        self,
        attention_norm: int,
        qkv: list[Part],
        q_norm: int,
        k_norm: int,
        output: list[Part],
        mlp_norm: int,
        gate_up: list[Part],
        down: list[Part],
        heads: int,
        kv_heads: int,
        head_dim: int,
        scale: float,
        window: int,
        /,
    ) -> None: ...

class DecoderWeights:
    """A whole decoder: see src/decoder.hpp. Vectors are addresses."""

    def __init__(
        self,
        embedding: Packed,
        layers: list[LayerWeights],
        final_norm: int,
        head: Packed,
        cos_sin: int,
        rotary_dim: int,
        epsilon: float,
        /,
    ) -> None: ...

class Kernels:
    """A level and the threads that run it: see src/module.cpp."""

    def __init__(self, threads: int, level: str | None) -> None: ...
    @property
    def level(self) -> str: ...
    @property
    def threads(self) -> int: ...
    # The kernels take addresses and numbers, of which types would tell nothing.
    def __getattr__(self, name: str) -> Callable[..., Any]: ...
