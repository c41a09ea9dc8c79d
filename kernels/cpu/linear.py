"""Products with packed weights, on tensors: x bfloat16 [T, in] (made so if it is not), results float32 [T, out].

Every output is summed in one order whatever T is (see src/matmul_tile.hpp): a row yields the same bits among any number
of rows.
"""

from __future__ import annotations

import torch
from torch import Tensor

from radixrt.kernels.cpu._native import Kernels
from radixrt.kernels.cpu.weights import PackedWeight


def linear(kernels: Kernels, x: Tensor, weight: PackedWeight, bias: Tensor | None = None) -> Tensor:
    """`x @ weight.T + bias`: float32 [T, out]."""
    out = torch.empty(x.shape[0], weight.shape[0])
    _multiply(kernels, x, weight, bias, out, accumulate=False)
    return out


def add_linear(kernels: Kernels, out: Tensor, x: Tensor, weight: PackedWeight, bias: Tensor | None = None) -> None:
    """`out += x @ weight.T + bias`, in place: the product is complete before it is added. `out` float32 [T, out]."""
    _multiply(kernels, x, weight, bias, out, accumulate=True)


def linear_silu(kernels: Kernels, x: Tensor, weight: PackedWeight) -> Tensor:
    """`silu(gate) * up` of the halves of `x @ weight.T`, gate first: bfloat16 [T, out / 2].

    The same bits as `linear` and then `silu_multiply`, without the products' way through memory.
    """
    rows, width = x.shape[0], weight.shape[0] // 2
    x = _operand(x, weight)
    out = torch.empty(rows, width, dtype=torch.bfloat16)
    if width % 16 == 0:
        kernels.matmul_silu(x.data_ptr(), weight.native, out.data_ptr(), rows, x.stride(0), width)
    else:
        # Panels of gate and up do not lie in step.
        gate_up = linear(kernels, x, weight)
        kernels.silu_multiply(gate_up.data_ptr(), out.data_ptr(), rows, width)
    return out


def embed(kernels: Kernels, ids: Tensor, table: PackedWeight) -> Tensor:
    """Rows of a packed matrix, exactly as it is dequantised: int64 [T] -> float32 [T, in].

    Raises IndexError if an id is no row of the table.
    """
    ids = ids.contiguous()
    out = torch.empty(ids.shape[0], table.shape[1])
    kernels.embed(ids.data_ptr(), table.native, out.data_ptr(), ids.shape[0])
    return out


def _multiply(
    kernels: Kernels, x: Tensor, weight: PackedWeight, bias: Tensor | None, out: Tensor, accumulate: bool
) -> None:
    x = _operand(x, weight)
    bias = None if bias is None else bias.float().contiguous()
    if out.dtype != torch.float32 or out.shape != (x.shape[0], weight.shape[0]) or out.stride(1) != 1:
        raise ValueError(f"the result is no float32 [{x.shape[0]}, {weight.shape[0]}] with whole rows")
    address = 0 if bias is None else bias.data_ptr()
    kernels.matmul(
        x.data_ptr(), weight.native, address, out.data_ptr(), x.shape[0], x.stride(0), out.stride(0), accumulate
    )


def _operand(x: Tensor, weight: PackedWeight) -> Tensor:
    """`x` as native code reads it: bfloat16, each row's elements beside one another."""
    if x.dim() != 2 or x.shape[1] != weight.shape[1]:
        raise ValueError(f"x has the shape {tuple(x.shape)}, the weight {weight.shape}: the inner sizes differ")
    x = x.to(torch.bfloat16)
    return x if x.stride(1) == 1 else x.contiguous()
