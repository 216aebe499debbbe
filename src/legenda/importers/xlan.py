"""Weights of the released X-LAN (JDAI-CV/image-captioning), and what X-Transformer's share with them."""

from __future__ import annotations

from typing import Any

from legenda.errors import CheckpointError
from legenda.importers.weight_map import StateDictMapper
from legenda.models import Captioner, create_model

_EMBEDDINGS = {"in_proj_q": "query_key", "in_proj_v1": "query_value", "in_proj_k": "key", "in_proj_v2": "value"}
_MAPS = {"attention_basic.0": "pair", "attention_last": "spatial", "attention_last2": "channel"}


def load_xlan(weights: StateDictMapper, *, num_heads: int | None = None, **options: Any) -> Captioner:
    """Return X-LAN from its released state dict, with any number of blocks in encoder (also 0) and decoder.

    The shapes determine all sizes, the heads included: `num_heads` is only checked. Other options are as released,
    unless `options` override them, as in `act="relu"`. Raise CheckpointError naming a tensor that is missing,
    unexpected or misshapen.
    """
    blocks = [f"encoder_layers.layers.{i}.encoder_attn" for i in range(weights.count("encoder_layers.layers.{}."))]
    attentions = [f"attention.layers.{i}.encoder_attn" for i in range(weights.count("attention.layers.{}."))]
    norm = region_norm(weights)
    found = {
        "vocab_size": weights.size("word_embed.0.weight"),
        "num_layers": len(blocks),
        "decoder_layers": len(attentions),
        "region_norm": norm is not None,
        **sizes(weights, "attention.layers.0.encoder_attn", num_heads),
    }
    model = create_model("xlan", **{**found, **options})
    map_regions(weights, norm)
    for i, block in enumerate(blocks):
        map_block(weights, block, f"encoder.layers.{i}.attention")
        weights.map_module(f"encoder_layers.bifeat_emb.{i}.0", f"encoder.layers.{i}.update_values.linear")
        weights.map_module(f"encoder_layers.layer_norms.{i}", f"encoder.layers.{i}.update_values.norm")
    weights.map_module("encoder_layers.proj", "encoder.global_feature")
    weights.map_module("encoder_layers.layer_norm", "encoder.global_norm")
    weights.map("word_embed.0.weight", "decoder.embedding.weight")
    for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
        weights.map(f"att_lstm.{name}", f"decoder.lstm.{name}")
    for i, attention in enumerate(attentions):
        map_block(weights, attention, f"decoder.attention.{i}")
    weights.map_module("attention.proj", "decoder.concat.0")
    weights.map_module("attention.layer_norm", "decoder.concat.1")
    weights.map_module("att2ctx.0", "decoder.to_context")
    weights.map_module("logit", "decoder.output")
    return weights.load_into(model)


def sizes(weights: StateDictMapper, block: str, num_heads: int | None) -> dict[str, int]:
    """Return the sizes that both models have; W_B of a block, shared by its heads, has the width of a head."""
    dim, feature_dim = (weights.size("att_embed.0.weight", axis) for axis in (0, 1))
    name = f"{block}.attn_net.attention_basic.0.weight"
    mid_dim, head_dim = (weights.size(name, axis) for axis in (0, 1))
    if not head_dim or dim % head_dim:
        raise CheckpointError(f"{weights.source} holds {name} for heads of {head_dim} channels, no divisor of {dim}")
    heads = dim // head_dim
    if num_heads not in (None, heads):
        raise CheckpointError(f"{weights.source} holds {name} for {heads} heads, not {num_heads}; give {heads}")
    return {"feature_dim": feature_dim, "dim": dim, "num_heads": heads, "mid_dim": mid_dim}


def region_norm(weights: StateDictMapper) -> str | None:
    """Return the name of the regions' layer normalization, which depends on dropout, or None."""
    return next((name for name in ("att_embed.2", "att_embed.3") if f"{name}.weight" in weights), None)


def map_regions(weights: StateDictMapper, norm: str | None) -> None:
    """Map the region embedding."""
    weights.map_module("att_embed.0", "encoder.input")
    if norm is not None:
        weights.map_module(norm, "encoder.norm")


def map_block(weights: StateDictMapper, source_key: str, target_key: str) -> None:
    """Map an X-Linear block."""
    for source, target in _EMBEDDINGS.items():
        weights.map_module(f"{source_key}.{source}.0", f"{target_key}.{target}.linear")
        weights.map_module(f"{source_key}.{source}.2", f"{target_key}.{target}.norm")
    for source, target in _MAPS.items():
        weights.map_module(f"{source_key}.attn_net.{source}", f"{target_key}.{target}")
