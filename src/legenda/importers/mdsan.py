"""Weights of the released MD-SAN, of its forms without distances or branches, and of the Meshed Transformer."""

from __future__ import annotations

from typing import Any

from legenda.decoding import GenerationConfig
from legenda.errors import CheckpointError
from legenda.importers.weight_map import HEADS, StateDictMapper, read_names
from legenda.models import Captioner, create_model

PAD, BEGIN, END = 1, 2, 3
"""Special token ids of the release's vocabulary; 0 is the unknown token."""


def load_mdsan(weights: StateDictMapper, *, num_heads: int | None = None, **options: Any) -> Captioner:
    """Return the model of a state dict of Young499/image-captioning-MDSANet.

    The tensors determine sizes, layers, branches of each layer, and whether distances rescale the scores; `options` are
    further options of the model. A state dict of aimagelab/meshed-memory-transformer, with or without memory slots,
    gives the model `meshed`. The state of a search among the releases' buffers is ignored. Raise CheckpointError naming
    a tensor that is missing, unexpected or misshapen.
    """
    layers = weights.count("encoder.layers.{}.")
    decoder_layers = weights.count("decoder.layers.{}.")
    if layers != decoder_layers or not layers:
        raise CheckpointError(
            f"{weights.source} has {layers} layers in the encoder and {decoder_layers} in the decoder; give the state "
            "dict of a released MD-SAN, which has as many in both"
        )
    weights.ignore(*(name for name, value in weights.tensors.items() if ".running_" in name or not value.numel()))
    sizes = {
        "vocab_size": weights.size("decoder.word_emb.weight"),
        "dim": weights.size("decoder.word_emb.weight", 1),
        "feature_dim": weights.size("encoder.fc.weight", 1),
        "ff_dim": weights.size("encoder.layers.0.pwff.fc1.weight"),
        "num_heads": HEADS if num_heads is None else num_heads,
        "num_layers": layers,
        "positions": weights.size("decoder.pos_emb.weight"),
        "pad_token_id": PAD,
    }
    meshed = any(".fc_alpha" in name for name in weights.tensors)
    name = "meshed" if meshed else "mdsan"
    branches = _slot_options(weights) if meshed else _branch_options(weights, layers)
    model = create_model(name, **{**sizes, **branches, **options})
    model.generation_config = GenerationConfig(bos_token_id=BEGIN, eos_token_id=END, max_length=20)
    return weights.load_into(model, read_names(name))


def _slot_options(weights: StateDictMapper) -> dict[str, Any]:
    """Return the options for the memory slots."""
    slots = "encoder.layers.0.mhatt.attention.m_k"
    if slots not in weights:
        return {"attention": "multi_head"}
    return {"attention": "memory", "memory_slots": weights.size(slots, 1)}


def _branch_options(weights: StateDictMapper, layers: int) -> dict[str, Any]:
    """Return MD-SAN's options for distances and branches."""
    branches = [max(1, weights.count(f"encoder.layers.{layer}.mhatts.{{}}.")) for layer in range(layers)]
    several = tuple(layer + 1 for layer, count in enumerate(branches) if count > 1)
    if set(branches) - {1, max(branches)}:
        raise CheckpointError(f"{weights.source} has {branches} branches in its layers; expected one or equally many")
    learned = [name for name in weights.tensors if name.endswith((".attention.W", ".attention.V"))]
    for name in learned:  # heads x 1 x 1 there
        if weights.tensors[name].shape[1:] == (1, 1):
            weights.tensors[name] = weights.tensors[name].flatten()
    return {
        "distance": "manhattan" if learned else "none",
        "branches": max(branches),
        "branch_layers": several if len(several) < layers else (),
    }
