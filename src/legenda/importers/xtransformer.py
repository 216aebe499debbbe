"""Weights of the released X-Transformer (JDAI-CV/image-captioning)."""

from __future__ import annotations

from typing import Any

import torch

from legenda.errors import UserError
from legenda.importers.weight_map import Translation
from legenda.importers.xlan import give_block, give_regions, region_norm, sizes
from legenda.models import Captioner, create_model
from legenda.models.xtransformer import positions


def load_xtransformer(weights: Translation, *, num_heads: int | None = None, **options: Any) -> Captioner:
    """X-Transformer from its release's state dict, any number of layers; see `load_xlan`.

    The table of positions is not kept but computed: UserError where the checkpoint's is not the one that its length
    implies.
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
    give_regions(weights, norm)
    for i, layer in enumerate(encoder):
        give_block(weights, f"{layer}.encoder_attn", f"encoder.layers.{i}.attention")
        weights.give_module(f"{layer}.bifeat_emb.0", f"encoder.layers.{i}.update_values.linear")
        weights.give_module(f"{layer}.layer_norm", f"encoder.layers.{i}.update_values.norm")
        _give_feed_forward(weights, layer, f"encoder.feed_forward.{i}")
    weights.give_module("encoder.proj_norm.0", "encoder.summary")
    weights.give_module("encoder.proj_norm.1", "encoder.summary_norm")
    weights.give("decoder.embed_tokens.weight", "decoder.embedding.weight")
    weights.give_module("decoder.layer_norm_word", "decoder.embedding_norm")
    for theirs, ours in (("decoder.wbil1", "decoder.from_image"), ("decoder.wbil2", "decoder.from_words")):
        weights.give_module(f"{theirs}.0", f"{ours}.0")
        weights.give_module(f"{theirs}.2", f"{ours}.2")
    for i, layer in enumerate(decoder):
        give_block(weights, f"{layer}.word_attn", f"decoder.layers.{i}.words")
        give_block(weights, f"{layer}.cross_att", f"decoder.layers.{i}.image")
        weights.give_module(f"{layer}.layer_norm_cross", f"decoder.layers.{i}.heard_norm")
        weights.give_module(f"{layer}.layer_norm_gx", f"decoder.layers.{i}.query_norm")
        if i < len(decoder) - 1:
            weights.give_module(f"{layer}.bifeat_emb.0", f"decoder.layers.{i}.update.linear")
            weights.give_module(f"{layer}.layer_norm_x", f"decoder.layers.{i}.update.norm")
            _give_feed_forward(weights, layer, f"decoder.layers.{i}.feed_forward")
    weights.give_module("decoder.proj_norm.0", "decoder.gather")
    weights.give_module("decoder.proj_norm.2", "decoder.norm")
    weights.give_module("decoder.generator", "decoder.output")
    return weights.fill(model)


def _position_base(weights: Translation, dim: int) -> float:
    name = "decoder.embed_positions.pe"
    length, table = weights.size(name, 1), weights[name]
    base = 2.0 * length
    expected = positions(0, length, dim, base, table.device).unsqueeze(0)
    if table.shape != expected.shape or not torch.allclose(table.float(), expected, rtol=0, atol=1e-3):
        raise UserError(f"{weights.source} holds {name} that are not the sinusoids of {length} positions")
    weights.ignore(name)
    return base


def _give_feed_forward(weights: Translation, theirs: str, ours: str) -> None:
    weights.give_module(f"{theirs}.ff_layer.fc1", f"{ours}.inner.0")
    weights.give_module(f"{theirs}.ff_layer.fc2", f"{ours}.inner.3")
    weights.give_module(f"{theirs}.ff_layer.layer_norms", f"{ours}.around.norm")
