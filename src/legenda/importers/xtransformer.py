"""Weights of the released X-Transformer (JDAI-CV/image-captioning)."""

from __future__ import annotations

from typing import Any

import torch

from legenda.errors import CheckpointError
from legenda.importers.weight_map import StateDictMapper, read_names
from legenda.importers.xlan import region_norm, sizes
from legenda.models import Captioner, create_model
from legenda.models.xtransformer import positions


def load_xtransformer(weights: StateDictMapper, *, num_heads: int | None = None, **options: Any) -> Captioner:
    """Return X-Transformer from its released state dict, with any number of layers; see `load_xlan`.

    Positional embeddings are computed, not loaded: raise CheckpointError where the checkpoint's differ from those that
    follow from its length.
    """
    encoder = [f"encoder.layers.{i}" for i in range(weights.count("encoder.layers.{}."))]
    decoder = [f"decoder.layers.{i}" for i in range(weights.count("decoder.layers.{}."))]
    found: dict[str, Any] = {
        "vocab_size": weights.size("decoder.embed_tokens.weight"),
        "num_layers": len(encoder),
        "decoder_layers": len(decoder),
        **sizes(weights, "decoder.layers.0.cross_att", num_heads),
    }
    found["position_base"] = _position_base(weights, found["dim"])
    feed_forward = next((f"{layer}.ff_layer.fc1.weight" for layer in encoder + decoder[:-1]), None)
    if feed_forward is not None:
        found["ff_dim"] = weights.size(feed_forward)
    model = create_model("xtransformer", **{**found, **options})
    return weights.load_into(model, read_names("xtransformer") | region_norm(weights))


def _position_base(weights: StateDictMapper, dim: int) -> float:
    name = "decoder.embed_positions.pe"
    length, table = weights.size(name, 1), weights[name]
    base = 2.0 * length
    expected = positions(0, length, dim, base, table.device).unsqueeze(0)
    if table.shape != expected.shape or not torch.allclose(table.float(), expected, rtol=0, atol=1e-3):
        raise CheckpointError(f"{weights.source} holds {name} that are not the sinusoids of {length} positions")
    weights.ignore(name)
    return base
