"""Weights of the released MD-SAN, of its forms without distances or branches, and of the Meshed Transformer."""

from __future__ import annotations

from typing import Any

from legenda.decoding import GenerationConfig
from legenda.errors import CheckpointError
from legenda.importers.weight_map import HEADS, StateDictMapper
from legenda.models import Captioner, create_model

PAD, BEGIN, END = 1, 2, 3
"""Special token ids of the release's vocabulary; 0 is the unknown token."""


def load_mdsan(weights: StateDictMapper, *, num_heads: int | None = None, **options: Any) -> Captioner:
    """Return the model of a state dict of Young499/image-captioning-MDSANet.

    The tensors determine sizes, layers, branches of each layer, and whether distances rescale the scores; `options` are
    further options of the model. A state dict of aimagelab/meshed-memory-transformer without memory slots gives the
    model `meshed`. The state of a search among the releases' buffers is ignored. Raise CheckpointError naming a tensor
    that is missing, unexpected or misshapen.
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
    map_layers = _map_meshed if meshed else _map_mdsan
    model = create_model("meshed" if meshed else "mdsan", **{**sizes, **map_layers(weights, layers), **options})
    model.generation_config = GenerationConfig(bos_token_id=BEGIN, eos_token_id=END, max_length=20)
    weights.map_module("encoder.fc", "encoder.input")
    weights.map_module("encoder.layer_norm", "encoder.input_norm")
    weights.map("decoder.word_emb.weight", "decoder.embedding.weight")
    weights.map("decoder.pos_emb.weight", "decoder.position_table")
    weights.map("decoder.fc.weight", "decoder.output.weight")
    for layer in range(layers):
        for name in (f"encoder.layers.{layer}", f"decoder.layers.{layer}"):
            weights.map_module(f"{name}.pwff.fc1", f"{name}.feed_forward.0")
            weights.map_module(f"{name}.pwff.fc2", f"{name}.feed_forward.3")
            weights.map_module(f"{name}.pwff.layer_norm", f"{name}.feed_forward_residual.norm")
    return weights.load_into(model)


def _map_mdsan(weights: StateDictMapper, layers: int) -> dict[str, Any]:
    """Map the tensors that only MD-SAN has, and return its options for distances and branches."""
    branches = [max(1, weights.count(f"encoder.layers.{layer}.mhatts.{{}}.")) for layer in range(layers)]
    several = tuple(layer + 1 for layer, count in enumerate(branches) if count > 1)
    if set(branches) - {1, max(branches)}:
        raise CheckpointError(f"{weights.source} has {branches} branches in its layers; expected one or equally many")
    learned = [name for name in weights.tensors if name.endswith((".attention.W", ".attention.V"))]
    for name in learned:  # heads x 1 x 1 there
        if weights.tensors[name].shape[1:] == (1, 1):
            weights.tensors[name] = weights.tensors[name].flatten()
    for layer, count in enumerate(branches):
        name = f"encoder.layers.{layer}"
        for branch in range(count):
            source_key, target_key = f"{name}.mhatts.{branch}", f"{name}.attention.branches.{branch}"
            _map_attention(weights, source_key, f"{target_key}.attention", f"{target_key}.norm")
            if learned:
                weights.map(f"{source_key}.attention.W", f"{target_key}.attention.rescale.weight")
                weights.map(f"{source_key}.attention.V", f"{target_key}.attention.rescale.shift")
        weights.map_module(f"{name}.lnorm", f"{name}.attention_residual.norm")
        name = f"decoder.layers.{layer}"
        for source_key, target_key, norm in (("self_att", "self_attn", "lnorm1"), ("enc_att", "cross_attn", "lnorm2")):
            _map_attention(
                weights, f"{name}.{source_key}", f"{name}.{target_key}", f"{name}.{target_key}_inner_residual.norm"
            )
            weights.map_module(f"{name}.{norm}", f"{name}.{target_key}_residual.norm")
    return {
        "distance": "manhattan" if learned else "none",
        "branches": max(branches),
        "branch_layers": several if len(several) < layers else (),
    }


def _map_meshed(weights: StateDictMapper, layers: int) -> dict[str, Any]:
    """Map the tensors that only the Meshed Transformer has."""
    for layer in range(layers):
        name = f"encoder.layers.{layer}"
        _map_attention(weights, f"{name}.mhatt", f"{name}.attention", f"{name}.attention_residual.norm")
        name = f"decoder.layers.{layer}"
        _map_attention(weights, f"{name}.self_att", f"{name}.self_attn", f"{name}.self_attn_residual.norm")
        _map_attention(weights, f"{name}.enc_att", f"{name}.cross_attn", f"{name}.cross_attn_residual.norm")
        for level in range(layers):
            weights.map_module(f"{name}.fc_alpha{level + 1}", f"{name}.gates.{level}")
    return {}


def _map_attention(weights: StateDictMapper, source_key: str, target_key: str, norm: str) -> None:
    for source, target in (("q", "query"), ("k", "key"), ("v", "value"), ("o", "output")):
        weights.map_module(f"{source_key}.attention.fc_{source}", f"{target_key}.{target}")
    weights.map_module(f"{source_key}.layer_norm", norm)
