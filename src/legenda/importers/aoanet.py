"""Weights of AoANet's released code (husthuaan/AoANet), for all rows of its Table 4 that the code can build."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from legenda.errors import CheckpointError
from legenda.importers.weight_map import HEADS, StateDictMapper
from legenda.models import Captioner, create_model


def load_aoanet(weights: StateDictMapper, *, num_heads: int | None = None, **options: Any) -> Captioner:
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
    found: dict[str, Any] = {
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
    if found["refiner_ff"]:
        found["ff_dim"] = weights.size(f"{first}feed_forward.w_1.weight")
    if not multi_head:
        found["additive_dim"] = weights.size("core.attention.h2att.weight")
    model = create_model("aoanet", **{**found, **options})
    _map_encoder(weights, layers, use_bn, embedded, found)
    _map_decoder(weights, attended, found)
    model = weights.load_into(model)
    model.generation_config = replace(model.generation_config, beam_suppress_tokens=(found["vocab_size"] - 1,))
    return model


def _context(weights: StateDictMapper) -> str:
    """Return which of the decoders of Figure 7 the weights belong to."""
    if "core.att2ctx.weight_ih" in weights:
        return "lstm"
    hidden, inputs = weights["core.att2ctx.0.weight"].shape[0], weights.size("core.att_lstm.weight_hh", 1)
    if hidden not in (inputs, 2 * inputs):
        raise CheckpointError(
            f"{weights.source} holds core.att2ctx.0.weight with {hidden} rows; {inputs} or {2 * inputs} were expected"
        )
    return "linear" if hidden == inputs else "aoa"


def _map_encoder(weights: StateDictMapper, layers: int, use_bn: int, embedded: str, found: dict[str, Any]) -> None:
    weights.map_module(embedded, "encoder.input")
    norms = {1: "input_norm", 4: "embedded_norm"}
    for index in (0, 4)[:use_bn]:
        for name in ("weight", "bias", "running_mean", "running_var"):
            weights.map(f"att_embed.{index}.{name}", f"encoder.{norms[index or 1]}.{name}")
        weights.ignore(f"att_embed.{index}.num_batches_tracked")
    if not found["mean_feats"]:
        weights.map_module("fc_embed.0", "encoder.global_embedding")
    for layer in range(layers):
        source_key, target_key = f"refiner.layers.{layer}", f"encoder.layers.{layer}"
        for number, name in enumerate(("query", "key", "value")):
            weights.map_module(f"{source_key}.self_attn.linears.{number}", f"{target_key}.attention.{name}")
        if found["refiner_aoa"]:
            weights.map_module(f"{source_key}.self_attn.aoa_layer.0", f"{target_key}.aoa.linear")
        else:
            weights.map_module(f"{source_key}.self_attn.output_layer", f"{target_key}.attention.output")
        weights.map_std_norm(f"{source_key}.sublayer.0.norm", f"{target_key}.norm")
        if found["refiner_ff"]:
            weights.map_module(f"{source_key}.feed_forward.w_1", f"{target_key}.feed_forward.0")
            weights.map_module(f"{source_key}.feed_forward.w_2", f"{target_key}.feed_forward.3")
            weights.map_std_norm(f"{source_key}.sublayer.1.norm", f"{target_key}.feed_forward_norm")
    if layers:
        weights.map_std_norm("refiner.norm", "encoder.norm")


def _map_decoder(weights: StateDictMapper, attended: int, found: dict[str, Any]) -> None:
    weights.map("embed.0.weight", "decoder.embedding.weight")
    for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
        weights.map(f"core.att_lstm.{name}", f"decoder.lstm.{name}")
        if found["context"] == "lstm":
            weights.map(f"core.att2ctx.{name}", f"decoder.second_lstm.{name}")
    if found["multi_head"]:
        weights.map_module("ctx2att", "decoder.attention.value", slice(0, attended))
        weights.map_module("ctx2att", "decoder.attention.key", slice(attended, None))
        weights.map_module("core.attention.linears.0", "decoder.attention.query")
        weights.map_std_norm("core.attention.norm", "decoder.query_norm")
    else:
        weights.map_module("ctx2att", "decoder.attention.key")
        weights.map_module("core.attention.h2att", "decoder.attention.query")
        weights.map_module("core.attention.alpha_net", "decoder.attention.score")
    if found["context"] != "lstm":
        weights.map_module("core.att2ctx.0", "decoder.aoa.linear" if found["context"] == "aoa" else "decoder.linear")
    weights.map_module("logit", "decoder.output")
