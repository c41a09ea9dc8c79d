"""Keys, values and layers' matrices in fp8: how numbers are rounded, and what becomes of a whole model."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from radixrt.config import WorkerConfig
from radixrt.kernels.fp8 import E4M3, narrowed
from radixrt.kernels.interface import KvShape
from radixrt.kernels.registry import load_backend
from radixrt.model.loader import load_model
from radixrt.model.weights.raw import raw_weight
from radixrt.protocol.ids import as_ids
from radixrt.protocol.sampling import SamplingParams
from radixrt.text.model_files import find_model
from radixrt.worker.build import build_engine
from radixrt.worker.engine import Completion
from tests.conformance.paged import Row, Tokens, layout


@pytest.fixture(autouse=True)
def _has_fp8(device: torch.device) -> None:
    if device.type == "cuda" and torch.cuda.get_device_capability() < (8, 9):
        pytest.skip("the GPU has no fp8")


def test_numbers_are_rounded_to_the_nearest_and_the_largest_is_kept(device: torch.device) -> None:
    backend = load_backend("triton", "float32", str(device), kv_dtype="fp8")
    random = torch.Generator().manual_seed(0)
    # All numbers of fp8, those halfway between two, or just beside that, and others of every size.
    every = torch.arange(0x7F, dtype=torch.uint8).view(E4M3).float()
    halfway = (every[1:] + every[:-1]) / 2
    wide = torch.randn(4096 - 127 - 3 * 126, generator=random) * torch.logspace(-5, 4, 4096 - 127 - 3 * 126)
    numbers = torch.cat([every, halfway, halfway * (1 + 1e-6), halfway * (1 - 1e-6), wide]).view(64, 1, 64)
    unturned = torch.cat([torch.ones(64, 32), torch.zeros(64, 32)], dim=1).to(device)
    kv = backend.allocate_kv(KvShape(1, 4, 16, 1, 64))
    plan = backend.plan(layout([Row(Tokens(numbers, numbers, numbers), 0, 64, [0, 1, 2, 3])], 16))
    x = numbers.to(device)
    backend.rotary_write_kv(x, x, -x, unturned, kv, 0, plan)
    keys, values = kv.data[0].cpu().view(torch.uint8).unbind(1)
    assert torch.equal(keys.reshape(64, 1, 64), narrowed(numbers).view(torch.uint8))
    assert torch.equal(values.reshape(64, 1, 64), narrowed(-numbers).view(torch.uint8))


def test_a_row_of_zeros_or_of_tiny_numbers_is_multiplied_like_any_other(device: torch.device) -> None:
    backend = load_backend("triton", "bfloat16", str(device), weights_dtype="fp8")
    raw = torch.randn(32, 48, generator=torch.Generator().manual_seed(1)).bfloat16()
    raw[5] = 0
    weight = backend.prepare_projection(raw_weight("bfloat16", raw, (32, 48)))
    x = torch.ones(3, 48, dtype=torch.bfloat16, device=device)
    x[1], x[2] = 0, 2.0**-60
    out = backend.linear(x, weight).cpu()
    assert out.isfinite().all()
    assert not out[1].any()
    assert not out[:, 5].any()
    torch.testing.assert_close(out[2].float() * 2.0**60, out[0].float(), rtol=2**-7, atol=0)


def logits_of(folder: Path, ids: list[int], kernels: str, dtype: str, device: str, narrow: str) -> torch.Tensor:
    """Of a prompt and then, one by one, of what follows it: [tokens, vocabulary]."""
    backend = load_backend(kernels, dtype, device, kv_dtype=narrow, weights_dtype=narrow)
    model = load_model(find_model(str(folder)), backend)
    kv = backend.allocate_kv(model.kv_shape(4, 16))
    nothing = Tokens(torch.empty(0), torch.empty(0), torch.empty(0))
    rows = []
    for start, end in ((0, 40), (40, 41), (41, 42)):
        placed = layout([Row(nothing, start, end, [2, 0, 3])], 16)
        rows.append(model.forward(torch.tensor(ids[start:end]), placed, kv, torch.arange(end - start)).cpu())
    return torch.cat(rows)


def test_a_model_in_fp8_is_near_the_one_that_its_weights_are_of(device: torch.device, tiny_llama: Path) -> None:
    ids = torch.randint(3, 500, (42,), generator=torch.Generator().manual_seed(2)).tolist()
    exact = logits_of(tiny_llama, ids, "reference", "float32", "cpu", "auto")
    wide, narrow = (
        logits_of(tiny_llama, ids, "triton", "bfloat16", device.type, narrow) - exact for narrow in ("auto", "fp8")
    )
    spread = exact.std()
    assert wide.std() < 0.05 * spread
    assert wide.std() < narrow.std() < 0.3 * spread


def test_an_engine_keeps_twice_the_tokens_in_fp8(device: torch.device, tiny_llama: Path) -> None:
    pools = []
    for narrow in ("auto", "fp8"):
        config = WorkerConfig(
            model=str(tiny_llama),
            kernels="triton",
            device=device.type,
            dtype="bfloat16",
            kv_dtype=narrow,  # type: ignore[arg-type]
            weights_dtype=narrow,  # type: ignore[arg-type]
            kv_memory=2**20,
        )
        engine, welcome = build_engine(config)
        pools.append(welcome.pool_pages)
    assert pools[1] == 2 * pools[0]
    params = SamplingParams(temperature=0.0, max_tokens=3, ignore_eos=True)
    prompt = as_ids(range(3, 30))
    requests = [engine.add(prompt, params, seed=0)]
    outputs = {}
    while engine.busy:
        outputs |= {event.request: event for event in engine.step() if isinstance(event, Completion)}
    requests.append(engine.add(prompt, params, seed=0))
    while engine.busy:
        outputs |= {event.request: event for event in engine.step() if isinstance(event, Completion)}
    # What was rounded once is read again, copied pages included.
    assert outputs[requests[1]].usage.cached_tokens == 26
    first, again = (outputs[request].output.tolist() for request in requests)
    assert len(first) == 3
    assert again == first


def test_a_pool_in_fp8_takes_half_of_what_one_in_16_bits_does(device: torch.device) -> None:
    shape = KvShape(2, 5, 16, 3, 64)
    wide, narrow = (load_backend("triton", "bfloat16", str(device), kv_dtype=kv) for kv in ("auto", "fp8"))
    assert narrow.kv_bytes(shape) * 2 == wide.kv_bytes(shape)
    assert narrow.allocate_kv(shape).data.nbytes == narrow.kv_bytes(shape)
