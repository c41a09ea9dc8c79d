"""Weights from GGUF and safetensors: the same numbers, in the same order, or a refusal that names the tensor."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from radixrt.errors import InvalidRequest, UnsupportedModel
from radixrt.kernels.registry import load_backend
from radixrt.model.gguf_config import read_config
from radixrt.model.llama import Model
from radixrt.model.loader import load_model
from radixrt.model.weights.gguf import GgufWeights
from radixrt.model.weights.raw import raw_weight, stack
from radixrt.text.gguf import GgufFile
from radixrt.text.model_files import ModelFiles
from tests.model.paged import chunked_logits
from tests.support.tiny_models import make_tiny_model

IDS = list(range(50, 90))


def load(files: ModelFiles, context_length: int | None = None) -> Model:
    return load_model(files, load_backend("reference", "float32", "cpu"), context_length)


def interleaved(rows: np.ndarray, heads: int) -> np.ndarray:
    """The order of q and k rows that llama.cpp's converter writes for the architecture llama."""
    return rows.reshape(heads, 2, rows.shape[0] // heads // 2, -1).swapaxes(1, 2).reshape(rows.shape)


GGUF_PARTS = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
GGUF_WHOLE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def gguf_name(name: str) -> str:
    stem, _, kind = name.rpartition(".")
    if stem in GGUF_WHOLE:
        return f"{GGUF_WHOLE[stem]}.{kind}"
    _, _, layer, part = stem.split(".", 3)
    return f"blk.{layer}.{GGUF_PARTS[part]}.{kind}"


def convert(
    folder: Path, path: Path, formats: Callable[[str], gguf.GGMLQuantizationType], skip: str = ""
) -> dict[str, np.ndarray]:
    """Write a folder's model as GGUF with the gguf package; returns what the tensors expand to, by their own names."""
    config = json.loads((folder / "config.json").read_text())
    architecture = "llama" if config["model_type"] == "mistral" else config["model_type"]
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    if config.get("head_dim"):
        writer.add_key_length(config["head_dim"])
        writer.add_value_length(config["head_dim"])
    if config.get("sliding_window"):
        writer.add_sliding_window(config["sliding_window"])
    expanded = {}
    for name, tensor in load_file(folder / "model.safetensors").items():
        values = tensor.numpy()
        fmt = formats(name) if values.ndim == 2 else gguf.GGMLQuantizationType.F32
        expanded[name] = gguf.quants.dequantize(gguf.quants.quantize(values, fmt), fmt)
        if architecture == "llama" and "q_proj" in name:
            values = interleaved(values, config["num_attention_heads"])
        if architecture == "llama" and "k_proj" in name:
            values = interleaved(values, config["num_key_value_heads"])
        if name != skip:
            writer.add_tensor(gguf_name(name), gguf.quants.quantize(values, fmt), raw_dtype=fmt)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return expanded


def rewrite(folder: Path, tensors: Mapping[str, np.ndarray]) -> None:
    save_file({name: torch.from_numpy(values) for name, values in tensors.items()}, folder / "model.safetensors")


def mixed(name: str) -> gguf.GGMLQuantizationType:
    """Formats that differ among q, k and v and between gate and up, as in the K-quant mixtures."""
    kinds = gguf.GGMLQuantizationType
    if "v_proj" in name or "up_proj" in name:
        return kinds.Q8_0
    return kinds.F16 if "embed" in name else kinds.Q4_1


@pytest.mark.parametrize("architecture", ["llama", "mistral", "qwen2", "qwen3"])
@pytest.mark.parametrize("formats", [lambda name: gguf.GGMLQuantizationType.Q4_1, mixed], ids=["Q4_1", "mixed"])
def test_a_gguf_file_computes_what_its_expanded_weights_compute(
    architecture: str, formats: Callable[[str], gguf.GGMLQuantizationType], tmp_path: Path
) -> None:
    folder = make_tiny_model(tmp_path / "folder", architecture)
    path = tmp_path / "tiny.gguf"
    expanded = convert(folder, path, formats)
    original = chunked_logits(load(ModelFiles("tiny", folder=folder)), IDS, [40])
    rewrite(folder, expanded)
    from_folder = chunked_logits(load(ModelFiles("tiny", folder=folder)), IDS, [40])
    from_gguf = chunked_logits(load(ModelFiles("tiny", gguf=path)), IDS, [40])
    assert (from_folder - original).abs().max() > 0.1  # quantisation did something
    torch.testing.assert_close(from_gguf, from_folder, atol=1e-4, rtol=0)


def test_quantised_rows_stay_packed_and_expand_to_the_order_of_hugging_face(tmp_path: Path) -> None:
    folder = make_tiny_model(tmp_path / "folder", "llama")
    path = tmp_path / "tiny.gguf"
    expanded = convert(folder, path, lambda name: gguf.GGMLQuantizationType.Q4_1)
    file = GgufFile(path)
    source = GgufWeights(file, read_config(file))
    for part in ("q_proj", "k_proj", "v_proj"):
        name = f"model.layers.1.self_attn.{part}.weight"
        weight = source.matrix(name)
        assert weight.format == "Q4_1"
        assert weight.data.dtype == torch.uint8
        np.testing.assert_array_equal(weight.expand().numpy(), expanded[name])


def test_stacking_merges_equal_formats_only() -> None:
    half = [raw_weight("float16", torch.full((2, 4), float(i), dtype=torch.float16), (2, 4)) for i in range(2)]
    full = raw_weight("float32", torch.ones(3, 4), (3, 4))
    assert [(weight.format, weight.shape) for weight in stack([*half, full])] == [
        ("float16", (4, 4)),
        ("float32", (3, 4)),
    ]
    assert stack(half)[0].expand()[:, 0].tolist() == [0.0, 0.0, 1.0, 1.0]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_safetensors_keep_their_dtype_in_shards_too(dtype: torch.dtype, tiny_llama: Path, tmp_path: Path) -> None:
    tensors = {name: tensor.to(dtype) for name, tensor in load_file(tiny_llama / "model.safetensors").items()}
    names = sorted(tensors)
    index: dict[str, str] = {}
    for shard, part in (("a.safetensors", names[::2]), ("b.safetensors", names[1::2])):
        save_file({name: tensors[name] for name in part}, tmp_path / shard)
        index |= dict.fromkeys(part, shard)
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    (tmp_path / "config.json").write_bytes((tiny_llama / "config.json").read_bytes())
    sharded = chunked_logits(load(ModelFiles("tiny", folder=tmp_path)), IDS, [40])
    whole = tmp_path / "whole"
    whole.mkdir()
    (whole / "config.json").write_bytes((tiny_llama / "config.json").read_bytes())
    save_file({name: tensor.float() for name, tensor in tensors.items()}, whole / "model.safetensors")
    assert torch.equal(sharded, chunked_logits(load(ModelFiles("tiny", folder=whole)), IDS, [40]))


def edited(folder: Path, target: Path, edit: Callable[[dict[str, torch.Tensor]], object]) -> ModelFiles:
    """A copy of a model whose tensors `edit` has changed."""
    tensors = load_file(folder / "model.safetensors")
    edit(tensors)
    save_file(tensors, target / "model.safetensors")
    (target / "config.json").write_bytes((folder / "config.json").read_bytes())
    return ModelFiles("tiny", folder=target)


Q_PROJ = "model.layers.1.self_attn.q_proj.weight"


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda tensors: tensors.pop(Q_PROJ), f"missing: {Q_PROJ}"),
        (lambda tensors: tensors.update({"model.vision.weight": torch.ones(2)}), "unknown: model.vision.weight"),
        (
            lambda tensors: tensors.update({Q_PROJ: torch.ones(8, 64)}),
            r"q_proj.weight has shape \(8, 64\), not \(64, 64",
        ),
        (
            lambda tensors: tensors.update({Q_PROJ: torch.ones(64, 64, dtype=torch.int8)}),
            "q_proj.weight is stored as I8",
        ),
    ],
)
def test_tensors_that_do_not_fit_are_named(
    edit: Callable[[dict[str, torch.Tensor]], object], message: str, tiny_llama: Path, tmp_path: Path
) -> None:
    with pytest.raises(UnsupportedModel, match=message):
        load(edited(tiny_llama, tmp_path, edit))


def test_a_tied_head_or_old_frequencies_in_the_file_do_no_harm(tiny_qwen2: Path, tmp_path: Path) -> None:
    def add(tensors: dict[str, torch.Tensor]) -> None:
        tensors["lm_head.weight"] = torch.full((512, 64), 9.0)
        tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(8)

    files = edited(tiny_qwen2, tmp_path, add)
    plain = chunked_logits(load(ModelFiles("tiny", folder=tiny_qwen2)), IDS, [40])
    assert torch.equal(chunked_logits(load(files), IDS, [40]), plain)


def test_a_gguf_file_without_a_tensor_is_refused_by_its_name(tmp_path: Path) -> None:
    folder = make_tiny_model(tmp_path / "folder", "llama")
    path = tmp_path / "tiny.gguf"
    convert(folder, path, lambda name: gguf.GGMLQuantizationType.F32, skip=Q_PROJ)
    with pytest.raises(UnsupportedModel, match=f"missing: {Q_PROJ}"):
        load(ModelFiles("tiny", gguf=path))


@pytest.mark.parametrize("content", [b"", b"not a safetensors file at all"])
def test_a_damaged_file_is_refused(content: bytes, tiny_llama: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes((tiny_llama / "config.json").read_bytes())
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(UnsupportedModel, match=r"cannot read .*model\.safetensors"):
        load(ModelFiles("tiny", folder=tmp_path))


def test_an_index_may_not_point_outside_its_folder(tiny_llama: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes((tiny_llama / "config.json").read_bytes())
    weight_map = {"model.norm.weight": f"../{tiny_llama.name}/model.safetensors"}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    with pytest.raises(UnsupportedModel, match="must lie beside it"):
        load(ModelFiles("tiny", folder=tmp_path))


def test_the_context_is_the_models_unless_a_shorter_one_is_asked_for(tiny_llama: Path) -> None:
    files = ModelFiles("tiny", folder=tiny_llama)
    assert load(files).context_length == 2048
    assert load(files, 100).context_length == 100
    with pytest.raises(InvalidRequest, match="context_length is 2049; tiny was made for at most 2048"):
        load(files, 2049)


def test_progress_tells_of_every_layer(tiny_llama: Path) -> None:
    seen: list[tuple[int, int]] = []
    kernels = load_backend("reference", "float32", "cpu")
    model = load_model(ModelFiles("tiny", folder=tiny_llama), kernels, progress=lambda *done: seen.append(done))
    assert seen == [(1, 2), (2, 2)]
    shape = model.kv_shape(10, 4)
    assert (shape.layers, shape.pages, shape.page_size, shape.kv_heads, shape.head_dim) == (2, 10, 4, 2, 16)
