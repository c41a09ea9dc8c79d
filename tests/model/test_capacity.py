"""The capacity formula, against calculations by hand and against what is really allocated."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open

from radixrt.config import WorkerConfig
from radixrt.errors import InvalidRequest
from radixrt.kernels.interface import KernelBackend, KvShape
from radixrt.kernels.reference.backend import ReferenceBackend
from radixrt.kernels.registry import available_backends, load_backend
from radixrt.kernels.triton.availability import INTERPRET, why_not
from radixrt.model.capacity import PRECISIONS, Demand, page_bytes, plan_capacity, weight_bytes, workspace_bytes
from radixrt.model.describe import config_named
from radixrt.model.loader import load_model
from radixrt.model.presets import PRESETS
from radixrt.model.tensors import expected_shapes, parameters
from radixrt.text.model_files import find_model
from radixrt.worker.build import build_engine
from tests.support.pools import tensor_bytes

WIDE, NARROW_KV, NARROW = PRECISIONS
LLAMA = config_named("llama-3.1-8b")
DEMAND = Demand(memory=141 * 10**9, context=8192, tokens=4096)

BFLOAT16 = [name for name, dtypes in available_backends().items() if "bfloat16" in dtypes]


def test_a_page_of_llama_31_8b_is_what_one_calculates_by_hand() -> None:
    # 2 (keys and values) * 32 layers * 8 KV heads * 128 elements * 2 bytes
    assert page_bytes(LLAMA, 1, 2) == 131_072
    assert page_bytes(LLAMA, 16, 1) == 16 * 65_536


def test_the_whole_calculation_for_llama_31_8b_by_hand() -> None:
    found = plan_capacity(LLAMA, DEMAND, WIDE)
    assert found.weights == 2 * 8_030_261_248
    # Of 8,192 tokens: residual, norm, gate, up and product; logits of 256 rows, twice; attention; the rotary table.
    assert found.workspace == 2 * 8192 * (2 * 4096 + 3 * 14_336) + 8 * 256 * 128_256 + 608 * 2**20 + 4 * 8192 * 128
    room = 141 * 10**9 * 9 // 10 - found.weights - found.workspace
    assert found.pages == room // 2_097_152 == 52_021
    assert found.full_requests == 52_021 * 16 // 8192 == found.reserved_requests
    # On average a request of 4,096 tokens leaves 7.5 slots empty.
    assert found.requests == int(52_021 * 16 / 4103.5)
    assert found.page_waste == pytest.approx(7.5 / 4103.5)
    assert found.reservation_waste == 0.5


def test_fp8_halves_pages_and_matrices_but_not_the_embedding_or_the_head() -> None:
    assert plan_capacity(LLAMA, DEMAND, NARROW_KV).page_bytes == 1_048_576
    assert plan_capacity(LLAMA, DEMAND, NARROW_KV).weights == 2 * 8_030_261_248
    matrices = 32 * (4096 * (4096 + 1024 + 1024 + 4096) + 3 * 4096 * 14_336)
    rows = 32 * (4096 + 1024 + 1024 + 4096 + 2 * 14_336 + 4096)
    assert weight_bytes(LLAMA, NARROW) == 2 * (8_030_261_248 - matrices) + matrices + 4 * rows


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("smollm2-135m", 134_515_008),
        ("llama-2-7b", 6_738_415_616),
        ("llama-3.1-8b", 8_030_261_248),
        ("llama-3.1-70b", 70_553_706_496),
        ("llama-3.2-1b", 1_235_814_400),
        ("llama-3.2-3b", 3_212_749_824),
        ("mistral-7b", 7_248_023_552),
        ("qwen2.5-7b", 7_615_616_512),
        ("qwen3-8b", 8_190_735_360),
        ("qwen3-32b", 32_762_123_264),
    ],
)
def test_a_preset_has_the_parameters_that_its_publisher_counts(name: str, count: int) -> None:
    assert parameters(config_named(name)) == count


def test_every_preset_is_counted_above() -> None:
    (mark,) = test_a_preset_has_the_parameters_that_its_publisher_counts.pytestmark  # type: ignore[attr-defined]
    assert {name for name, _ in mark.args[1]} == PRESETS.keys()


def test_a_models_tensors_are_counted_as_its_file_has_them(tiny_llama: Path, tiny_qwen2: Path) -> None:
    for folder in (tiny_llama, tiny_qwen2):
        with safe_open(folder / "model.safetensors", "pt") as file:
            shapes = [file.get_slice(name).get_shape() for name in file.keys()]  # noqa: SIM118 (no mapping)
        assert parameters(config_named(str(folder))) == sum(map(prod, shapes))


@pytest.mark.parametrize("backend", BFLOAT16)
@pytest.mark.parametrize(("model", "page_size"), [("llama-3.1-8b", 16), ("smollm2-135m", 32), ("llama-2-7b", 1)])
def test_a_page_is_what_a_real_pool_allocates(backend: str, model: str, page_size: int) -> None:
    config = config_named(model)
    shape = KvShape(config.layers, 64 // page_size, page_size, config.kv_heads, config.head_dim)
    allocated = tensor_bytes(load_backend(backend, "bfloat16").allocate_kv(shape))
    assert allocated == pytest.approx(shape.pages * page_bytes(config, page_size, 2), rel=0.02)


def test_the_planned_pool_is_the_one_that_a_real_engine_allocates(
    tiny_llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pools = []
    allocate = ReferenceBackend.allocate_kv
    monkeypatch.setattr(
        ReferenceBackend, "allocate_kv", lambda self, shape: pools.append(allocate(self, shape)) or pools[-1]
    )
    config = config_named(str(tiny_llama))
    pool = 3_000_000
    demand = Demand(memory=1, context=2048, tokens=100, share=1.0)
    rest = weight_bytes(config, WIDE) + workspace_bytes(config, demand)
    planned = plan_capacity(config, replace(demand, memory=rest + pool), WIDE)
    _, welcome = build_engine(
        WorkerConfig(model=str(tiny_llama), kernels="reference", dtype="bfloat16", kv_memory=pool)
    )
    (allocated,) = map(tensor_bytes, pools)
    assert planned.pages == welcome.pool_pages
    assert planned.pool == pytest.approx(allocated, rel=0.02)


@pytest.fixture
def narrow_triton(monkeypatch: pytest.MonkeyPatch) -> KernelBackend:
    """Triton's kernels with KV and weights in fp8; on a CPU they allocate just as much."""
    monkeypatch.setenv(INTERPRET, "1")
    if (reason := why_not("cpu")) is not None:
        pytest.skip(reason)
    return load_backend("triton", "bfloat16", kv_dtype="fp8", weights_dtype="fp8")


@pytest.mark.parametrize(("model", "page_size"), [("llama-3.1-8b", 16), ("smollm2-135m", 32)])
def test_a_page_in_fp8_is_what_a_real_pool_allocates(narrow_triton: KernelBackend, model: str, page_size: int) -> None:
    config = config_named(model)
    shape = KvShape(config.layers, 4, page_size, config.kv_heads, config.head_dim)
    assert tensor_bytes(narrow_triton.allocate_kv(shape)) == 4 * page_bytes(config, page_size, NARROW.kv_bytes)


def test_weights_in_fp8_are_what_a_real_model_takes(narrow_triton: KernelBackend, tiny_llama: Path) -> None:
    config = config_named(str(tiny_llama))
    matrices = []
    prepare = narrow_triton.prepare_projection
    narrow_triton.prepare_projection = lambda raw: matrices.append(prepare(raw)) or matrices[-1]  # type: ignore[method-assign]
    load_model(find_model(str(tiny_llama)), narrow_triton)
    taken = sum(map(tensor_bytes, matrices))
    # All but the layers' matrices is in 16 bits.
    shapes = expected_shapes(config)
    rest = sum(prod(shape) for name, shape in shapes.items() if len(shape) == 1 or ".layers." not in name)
    assert taken + 2 * rest == weight_bytes(config, NARROW)
    assert taken < 0.6 * (weight_bytes(config, WIDE) - 2 * rest)


@pytest.mark.parametrize("backend", [name for name in BFLOAT16 if name.startswith("cpu")])
def test_odd_heads_are_counted_as_native_kernels_store_them(backend: str) -> None:
    config = replace(LLAMA, head_dim=100)
    allocated = tensor_bytes(load_backend(backend, "bfloat16").allocate_kv(KvShape(32, 4, 16, 8, 100)))
    assert allocated == pytest.approx(4 * page_bytes(config, 16, 2), rel=0.02)
    assert load_backend(backend, "bfloat16").kv_bytes(KvShape(32, 4, 16, 8, 100)) == 4 * page_bytes(config, 16, 2)
    assert page_bytes(config, 16, 2) == page_bytes(replace(LLAMA, head_dim=112), 16, 2)


def test_a_shared_prefix_takes_its_whole_pages_once() -> None:
    few = replace(DEMAND, tokens=1500, shared=1001)
    # 62 of its pages are full: 992 tokens once, 508 for each request.
    assert plan_capacity(LLAMA, few, WIDE).requests == int((52_021 - 62) * 16 / 515.5)


def test_pages_of_one_token_leave_nothing_empty() -> None:
    assert plan_capacity(LLAMA, replace(DEMAND, page_size=1), WIDE).page_waste == 0


def test_a_device_that_the_weights_fill_has_no_page() -> None:
    found = plan_capacity(LLAMA, replace(DEMAND, memory=16 * 10**9), WIDE)
    assert (found.pages, found.pool, found.full_requests, found.requests, found.reserved_requests) == (0, 0, 0, 0, 0)


def test_the_memory_that_is_needed_holds_just_that_many() -> None:
    demand = replace(DEMAND, concurrency=50)
    needed = plan_capacity(LLAMA, demand, WIDE).needed
    assert needed is not None
    assert plan_capacity(LLAMA, replace(demand, memory=needed + 1), WIDE).full_requests == 50
    assert plan_capacity(LLAMA, replace(demand, memory=needed - 2**22), WIDE).full_requests == 49


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"memory": 0}, "memory"),
        ({"context": 0}, "context"),
        ({"context": 131_073}, "context"),
        ({"tokens": 0}, "tokens"),
        ({"tokens": 8193}, "tokens"),
        ({"shared": -1}, "shared"),
        ({"shared": 4096}, "shared"),
        ({"page_size": 24}, "page_size"),
        ({"step_tokens": 0}, "step_tokens"),
        ({"max_running": 0}, "max_running"),
        ({"concurrency": 0}, "concurrency"),
        ({"share": 0.0}, "share"),
        ({"share": 1.01}, "share"),
        ({"share": float("nan")}, "share"),
    ],
)
def test_what_is_out_of_range_is_named(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        plan_capacity(LLAMA, replace(DEMAND, **changes), WIDE)
    assert caught.value.field == field
