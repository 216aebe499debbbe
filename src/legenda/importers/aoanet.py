"""Weights of AoANet's released code (husthuaan/AoANet), for all rows of its Table 4 that the code can build."""

from __future__ import annotations

from typing import Any

from legenda.errors import CheckpointError
from legenda.importers.weight_map import HEADS, ReleasedName, StateDictMapper, read_names
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
    names = read_names("aoanet") | {"encoder.input": embedded, **_attention_names(attended, multi_head)}
    weights.ignore(*(f"att_embed.{index}.num_batches_tracked" for index in (0, 4)))
    model = weights.load_into(model, names)
    model.generation_config = model.generation_config.replace(beam_suppress_tokens=(found["vocab_size"] - 1,))
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
