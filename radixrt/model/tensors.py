"""Which tensors a model has, known from its configuration alone."""

from __future__ import annotations

from math import prod

from radixrt.model.config import ModelConfig


def expected_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Every tensor that a model of this configuration has."""
    hidden, wide = config.hidden, config.intermediate
    q, kv = config.heads * config.head_dim, config.kv_heads * config.head_dim
    shapes: dict[str, tuple[int, ...]] = {
        "embed_tokens.weight": (config.vocabulary_size, hidden),
        "norm.weight": (hidden,),
    }
    for layer in range(config.layers):
        part: dict[str, tuple[int, ...]] = {
            "input_layernorm.weight": (hidden,),
            "self_attn.q_proj.weight": (q, hidden),
            "self_attn.k_proj.weight": (kv, hidden),
            "self_attn.v_proj.weight": (kv, hidden),
            "self_attn.o_proj.weight": (hidden, q),
            "post_attention_layernorm.weight": (hidden,),
            "mlp.gate_proj.weight": (wide, hidden),
            "mlp.up_proj.weight": (wide, hidden),
            "mlp.down_proj.weight": (hidden, wide),
        }
        if config.qkv_bias:
            part |= {"self_attn.q_proj.bias": (q,), "self_attn.k_proj.bias": (kv,), "self_attn.v_proj.bias": (kv,)}
        if config.output_bias:
            part["self_attn.o_proj.bias"] = (hidden,)
        if config.qk_norm:
            part |= {"self_attn.q_norm.weight": (config.head_dim,), "self_attn.k_norm.weight": (config.head_dim,)}
        shapes |= {f"layers.{layer}.{name}": shape for name, shape in part.items()}
    shapes = {f"model.{name}": shape for name, shape in shapes.items()}
    if not config.tied_embeddings:
        shapes["lm_head.weight"] = (config.vocabulary_size, hidden)
    return shapes


def parameters(config: ModelConfig) -> int:
    """Elements of all tensors together."""
    return sum(prod(shape) for shape in expected_shapes(config).values())
