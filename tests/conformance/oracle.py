"""What the operations mean, in float64 over whole sequences: no pages, no blocks, no batch."""

from __future__ import annotations

import torch
from torch import Tensor

from radixrt.kernels.interface import AttentionShape, KernelBackend

TOLERANCE = {
    torch.float32: {"rtol": 2e-5, "atol": 2e-5},
    torch.bfloat16: {"rtol": 2**-7, "atol": 2**-8},
    torch.float16: {"rtol": 2**-10, "atol": 2**-11},
    torch.float8_e4m3fn: {"rtol": 2**-4, "atol": 2**-5},
}
"""Half a unit in the last place of a bfloat16 is 2^-9 of its value, of a float16 2^-12; two roundings of values near 1
fit in this. Of e4m3 it is 2^-4, here of keys only: in a sum over many of them most of that is lost."""


def assert_near(actual: Tensor, expected: Tensor, computed_in: torch.dtype | None = None) -> None:
    """`computed_in`: the coarsest type on the way, where the result's own does not tell."""
    torch.testing.assert_close(actual.double(), expected, **TOLERANCE[computed_in or actual.dtype])


def assert_same(backend: KernelBackend, actual: Tensor, expected: Tensor) -> None:
    """The same rows computed in two ways: the same bits where the backend keeps the row rule."""
    if backend.exact_rows:
        assert torch.equal(actual, expected)
    else:
        assert_near(actual, expected.double())


def attention(q: Tensor, k: Tensor, v: Tensor, shape: AttentionShape) -> Tensor:
    """Causal attention of a whole sequence: q [n, heads, d], k and v [n, kv_heads, d] -> [n, heads, d]."""
    group = shape.heads // shape.kv_heads
    k, v = (t.double().repeat_interleave(group, dim=1) for t in (k, v))
    scores = torch.einsum("qhd,khd->hqk", q.double(), k) * shape.scale
    distance = torch.arange(len(q))[:, None] - torch.arange(len(k))
    hidden = distance < 0
    if shape.window is not None:
        hidden |= distance >= shape.window
    weights = scores.masked_fill(hidden, -torch.inf).softmax(-1)
    return torch.einsum("hqk,khd->qhd", weights, v)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    x = x.double()
    return x / (x.pow(2).mean(-1, keepdim=True) + eps).sqrt() * weight.double()


def silu_multiply(gate_up: Tensor) -> Tensor:
    gate, up = gate_up.double().chunk(2, dim=-1)
    return gate * torch.sigmoid(gate) * up


def rotate(x: Tensor, cos_sin: Tensor, positions: Tensor) -> Tensor:
    """x [n, heads, d], cos_sin [positions, rotary_dim]: each pair (i, i + rotary_dim / 2) as a complex number."""
    cos, sin = cos_sin[positions.long()].double().chunk(2, dim=-1)
    half = cos.shape[-1]
    x = x.double()
    turned = torch.complex(x[..., :half], x[..., half : 2 * half]) * torch.complex(cos, sin)[:, None]
    return torch.cat([turned.real, turned.imag, x[..., 2 * half :]], dim=-1)
