"""Weights of the released X-Transformer (JDAI-CV/image-captioning)."""

from __future__ import annotations

from typing import Any

import torch

from legenda.errors import CheckpointError
from legenda.importers.weight_map import StateDictMapper
from legenda.importers.xlan import map_block, map_regions, region_norm, sizes
from legenda.models import Captioner, create_model
from legenda.models.xtransformer.decoder import positions


def load_xtransformer(weights: StateDictMapper, *, num_heads: int | None = None, **options: Any) -> Captioner:
    """Return X-Transformer from its released state dict, with any number of layers; see `load_xlan`.

    Positional embeddings are computed, not loaded: raise CheckpointError where the checkpoint's differ from those that
    follow from its length.
    """
    encoder = [f"encoder.layers.{i}" for i in range(weights.count("encoder.layers.{}."))]
    decoder = [f"decoder.layers.{i}" for i in range(weights.count("decoder.layers.{}."))]
    norm = region_norm(weights)
    found: dict[str, Any] = {
        "vocab_size": weights.size("decoder.embed_tokens.weight"),
        "num_layers": len(encoder),
        "decoder_layers": len(decoder),
        "region_norm": norm is not None,
        **sizes(weights, "decoder.layers.0.cross_att", num_heads),
    }
    found["position_base"] = _position_base(weights, found["dim"])
    feed_forward = next((f"{layer}.ff_layer.fc1.weight" for layer in encoder + decoder[:-1]), None)
    if feed_forward is not None:
        found["ff_dim"] = weights.size(feed_forward)
    model = create_model("xtransformer", **{**found, **options})
    map_regions(weights, norm)
    for i, layer in enumerate(encoder):
        map_block(weights, f"{layer}.encoder_attn", f"encoder.layers.{i}.attention")
        weights.map_module(f"{layer}.bifeat_emb.0", f"encoder.layers.{i}.update_values.linear")
        weights.map_module(f"{layer}.layer_norm", f"encoder.layers.{i}.update_values.norm")
        _map_feed_forward(weights, layer, f"encoder.feed_forward.{i}")
    weights.map_module("encoder.proj_norm.0", "encoder.global_feature")
    weights.map_module("encoder.proj_norm.1", "encoder.global_norm")
    weights.map("decoder.embed_tokens.weight", "decoder.embedding.weight")
    weights.map_module("decoder.layer_norm_word", "decoder.embedding_norm")
    for source_key, target_key in (("decoder.wbil1", "decoder.from_image"), ("decoder.wbil2", "decoder.from_tokens")):
        weights.map_module(f"{source_key}.0", f"{target_key}.0")
        weights.map_module(f"{source_key}.2", f"{target_key}.2")
    for i, layer in enumerate(decoder):
        map_block(weights, f"{layer}.word_attn", f"decoder.layers.{i}.self_attn")
        map_block(weights, f"{layer}.cross_att", f"decoder.layers.{i}.cross_attn")
        weights.map_module(f"{layer}.layer_norm_cross", f"decoder.layers.{i}.kv_norm")
        weights.map_module(f"{layer}.layer_norm_gx", f"decoder.layers.{i}.query_norm")
        if i < len(decoder) - 1:
            weights.map_module(f"{layer}.bifeat_emb.0", f"decoder.layers.{i}.update.linear")
            weights.map_module(f"{layer}.layer_norm_x", f"decoder.layers.{i}.update.norm")
            _map_feed_forward(weights, layer, f"decoder.layers.{i}.feed_forward")
    weights.map_module("decoder.proj_norm.0", "decoder.concat")
    weights.map_module("decoder.proj_norm.2", "decoder.norm")
    weights.map_module("decoder.generator", "decoder.output")
    return weights.load_into(model)


def _position_base(weights: StateDictMapper, dim: int) -> float:
    name = "decoder.embed_positions.pe"
    length, table = weights.size(name, 1), weights[name]
    base = 2.0 * length
    expected = positions(0, length, dim, base, table.device).unsqueeze(0)
    if table.shape != expected.shape or not torch.allclose(table.float(), expected, rtol=0, atol=1e-3):
        raise CheckpointError(f"{weights.source} holds {name} that are not the sinusoids of {length} positions")
    weights.ignore(name)
    return base


def _map_feed_forward(weights: StateDictMapper, source_key: str, target_key: str) -> None:
    weights.map_module(f"{source_key}.ff_layer.fc1", f"{target_key}.inner.0")
    weights.map_module(f"{source_key}.ff_layer.fc2", f"{target_key}.inner.3")
    weights.map_module(f"{source_key}.ff_layer.layer_norms", f"{target_key}.residual.norm")
