"""Weights of the released codes: AoANet, X-LAN, X-Transformer, MD-SAN and the Meshed Transformer."""

from __future__ import annotations

from typing import Any

import torch

from legenda.decoding import GenerationConfig
from legenda.errors import CheckpointError
from legenda.importers.loading import HEADS, Importer, ReleasedName, StateDictMapper, read_names
from legenda.models import Captioner, create_model
from legenda.models.xtransformer import positions


def load_aoanet(weights: StateDictMapper, *, num_heads: int | None = None, **options: object) -> Captioner:
    """Return the model of a released state dict, whose names and shapes determine the ablation and all sizes but heads.

    The last token of the release's vocabulary is its unknown token, which beam search suppresses, as in the release.
    Raise CheckpointError naming a tensor that is missing, unexpected or misshapen.
    """
    refiner, multi_head = "refiner.layers.{}.", "core.attention.linears.0.weight" in weights
    layers = weights.count(refiner)
    first = refiner.format(0)
    dim = weights.size("core.att_lstm.weight_hh", 1)
    use_bn = 2 if "att_embed.4.running_mean" in weights else int("att_embed.0.running_mean" in weights)
    embedded = f"att_embed.{1 if use_bn else 0}"
    attended = weights.size("core.attention.linears.0.weight") if multi_head else dim
    config: dict[str, Any] = {
        "vocab_size": weights.size("embed.0.weight"),
        "feature_dim": weights.size(f"{embedded}.weight", 1),
        "dim": dim,
        "word_dim": weights.size("embed.0.weight", 1),
        "num_heads": HEADS if num_heads is None else num_heads,
        "num_layers": layers,
        "refiner_aoa": not layers or f"{first}self_attn.aoa_layer.0.weight" in weights,
        "refiner_ff": f"{first}feed_forward.w_1.weight" in weights,
        "context": _context(weights),
        "multi_head": multi_head,
        "multi_head_scale": max(attended // dim, 1),
        "use_bn": use_bn,
        "mean_feats": "fc_embed.0.weight" not in weights,
    }
    if config["refiner_ff"]:
        config["ff_dim"] = weights.size(f"{first}feed_forward.w_1.weight")
    if not multi_head:
        config["additive_dim"] = weights.size("core.attention.h2att.weight")
    model = create_model("aoanet", **{**config, **options})
    names = read_names("aoanet") | {"encoder.input": embedded, **_attention_names(attended, multi_head)}
    weights.ignore(*(f"att_embed.{index}.num_batches_tracked" for index in (0, 4)))
    model = weights.load_into(model, names)
    model.generation_config = model.generation_config.replace(beam_suppress_tokens=(config["vocab_size"] - 1,))
    return model


def _context(weights: StateDictMapper) -> str:
    """Return which of the decoders of Figure 7 the weights belong to."""
    if "core.att2ctx.weight_ih" in weights:
        return "lstm"
    hidden, inputs = weights.size("core.att2ctx.0.weight"), weights.size("core.att_lstm.weight_hh", 1)
    if hidden not in (inputs, 2 * inputs):
        raise CheckpointError(
            f"{weights.source} holds core.att2ctx.0.weight with {hidden} rows; {inputs} or {2 * inputs} were expected"
        )
    return "linear" if hidden == inputs else "aoa"


def _attention_names(attended: int, multi_head: bool) -> dict[str, ReleasedName]:
    """Return the released names in the decoder's attention; in heads, values and keys are in one layer there."""
    if not multi_head:
        return {"decoder.attention.key": "ctx2att", "decoder.attention.query": "core.attention.h2att"}
    return {
        "decoder.attention.value": ("ctx2att", slice(0, attended)),
        "decoder.attention.key": ("ctx2att", slice(attended, None)),
        "decoder.attention.query": "core.attention.linears.0",
    }


def load_xlan(weights: StateDictMapper, *, num_heads: int | None = None, **options: object) -> Captioner:
    """Return X-LAN from its released state dict, with any number of blocks in encoder (also 0) and decoder.

    The shapes determine all sizes, the heads included: `num_heads` is only checked. Other options are as released,
    unless `options` override them, as in `act="relu"`. Raise CheckpointError naming a tensor that is missing,
    unexpected or misshapen.
    """
    config = {
        "vocab_size": weights.size("word_embed.0.weight"),
        "num_layers": weights.count("encoder_layers.layers.{}."),
        "decoder_layers": weights.count("attention.layers.{}."),
        **sizes(weights, "attention.layers.0.encoder_attn", num_heads),
    }
    model = create_model("xlan", **{**config, **options})
    return weights.load_into(model, read_names("xlan") | _region_norm(weights))


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
    normed = bool(_region_norm(weights))
    return {"feature_dim": feature_dim, "dim": dim, "num_heads": heads, "mid_dim": mid_dim, "region_norm": normed}


def _region_norm(weights: StateDictMapper) -> dict[str, ReleasedName]:
    """Return the released name of the regions' layer normalization, which depends on dropout, if there is one."""
    name = next((name for name in ("att_embed.2", "att_embed.3") if f"{name}.weight" in weights), None)
    return {} if name is None else {"encoder.norm": name}


def load_xtransformer(weights: StateDictMapper, *, num_heads: int | None = None, **options: object) -> Captioner:
    """Return X-Transformer from its released state dict, with any number of layers; see `load_xlan`.

    Positional embeddings are computed, not loaded: raise CheckpointError where the checkpoint's differ from those that
    follow from its length.
    """
    encoder = [f"encoder.layers.{i}" for i in range(weights.count("encoder.layers.{}."))]
    decoder = [f"decoder.layers.{i}" for i in range(weights.count("decoder.layers.{}."))]
    config: dict[str, Any] = {
        "vocab_size": weights.size("decoder.embed_tokens.weight"),
        "num_layers": len(encoder),
        "decoder_layers": len(decoder),
        **sizes(weights, "decoder.layers.0.cross_att", num_heads),
    }
    config["position_base"] = _position_base(weights, config["dim"])
    feed_forward = next((f"{layer}.ff_layer.fc1.weight" for layer in encoder + decoder[:-1]), None)
    if feed_forward is not None:
        config["ff_dim"] = weights.size(feed_forward)
    model = create_model("xtransformer", **{**config, **options})
    return weights.load_into(model, read_names("xtransformer") | _region_norm(weights))


def _position_base(weights: StateDictMapper, dim: int) -> float:
    name = "decoder.embed_positions.pe"
    length, table = weights.size(name, 1), weights[name]
    base = 2.0 * length
    expected = positions(0, length, dim, base, table.device).unsqueeze(0) if length else table.new_empty(0)
    if table.shape != expected.shape or not torch.allclose(table.float(), expected, rtol=0, atol=1e-3):
        raise CheckpointError(f"{weights.source} holds {name} that are not the sinusoids of {length} positions")
    weights.ignore(name)
    return base


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


def _slot_options(weights: StateDictMapper) -> dict[str, object]:
    """Return the options for the memory slots."""
    slots = "encoder.layers.0.mhatt.attention.m_k"
    if slots not in weights:
        return {"attention": "multi_head"}
    return {"attention": "memory", "memory_slots": weights.size(slots, 1)}


def _branch_options(weights: StateDictMapper, layers: int) -> dict[str, object]:
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


AOANET, XLAN, XTRANSFORMER, MDSAN = map(Importer, (load_aoanet, load_xlan, load_xtransformer, load_mdsan))
