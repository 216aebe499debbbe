"""Weights of the released X-LAN (JDAI-CV/image-captioning), and what X-Transformer's share with them."""

from __future__ import annotations

from typing import Any

from legenda.errors import CheckpointError
from legenda.importers.weight_map import ReleasedName, StateDictMapper, read_names
from legenda.models import Captioner, create_model


def load_xlan(weights: StateDictMapper, *, num_heads: int | None = None, **options: Any) -> Captioner:
    """Return X-LAN from its released state dict, with any number of blocks in encoder (also 0) and decoder.

    The shapes determine all sizes, the heads included: `num_heads` is only checked. Other options are as released,
    unless `options` override them, as in `act="relu"`. Raise CheckpointError naming a tensor that is missing,
    unexpected or misshapen.
    """
    found = {
        "vocab_size": weights.size("word_embed.0.weight"),
        "num_layers": weights.count("encoder_layers.layers.{}."),
        "decoder_layers": weights.count("attention.layers.{}."),
        **sizes(weights, "attention.layers.0.encoder_attn", num_heads),
    }
    model = create_model("xlan", **{**found, **options})
    return weights.load_into(model, read_names("xlan") | region_norm(weights))


def sizes(weights: StateDictMapper, block: str, num_heads: int | None) -> dict[str, Any]:
    """Return the options that both models have; W_B of a block, shared by its heads, has the width of a head."""
    dim, feature_dim = (weights.size("att_embed.0.weight", axis) for axis in (0, 1))
    name = f"{block}.attn_net.attention_basic.0.weight"
    mid_dim, head_dim = (weights.size(name, axis) for axis in (0, 1))
    if not head_dim or dim % head_dim:
        raise CheckpointError(f"{weights.source} holds {name} for heads of {head_dim} channels, no divisor of {dim}")
    heads = dim // head_dim
    if num_heads not in (None, heads):
        raise CheckpointError(f"{weights.source} holds {name} for {heads} heads, not {num_heads}; give {heads}")
    normed = bool(region_norm(weights))
    return {"feature_dim": feature_dim, "dim": dim, "num_heads": heads, "mid_dim": mid_dim, "region_norm": normed}


def region_norm(weights: StateDictMapper) -> dict[str, ReleasedName]:
    """Return the released name of the regions' layer normalization, which depends on dropout, if there is one."""
    name = next((name for name in ("att_embed.2", "att_embed.3") if f"{name}.weight" in weights), None)
    return {} if name is None else {"encoder.norm": name}
