"""Small models of every architecture and option."""

import functools
import itertools

import torch
from torch import nn

import legenda
from legenda.attention import MaskedBatchNorm
from legenda.models import Captioner, describe_model
from legenda.papers import all_recipes

VOCABULARY, FEATURES, ROWS, WORDS = 11, 6, 2, 5
SMALL = {
    "vocab_size": VOCABULARY,
    "feature_dim": FEATURES,
    "dim": 16,
    "num_heads": 2,
    "num_layers": 2,
    "ff_dim": 24,
    "additive_dim": 12,
    "mid_dim": 4,
}
COUNTS = (5, 3, 1)
"""Real regions of the three images of a batch."""

VARIANTS = {
    f"{norm} on {norm_on}, {geometry}": ("transformer", {"norm": norm, "norm_on": norm_on, "geometry": geometry})
    for norm, norm_on, geometry in [
        *itertools.product(("in", "in_affine", "ln", "bn"), ("q", "k", "qk"), ("none",)),
        *itertools.product(("none", "in"), ("qk",), ("absolute", "content", "key", "content+query+key")),
        ("bn", "q", "query+key"),
        ("ln", "k", "content+key"),
        ("in_affine", "qk", "query"),
    ]
} | {
    "a geometry per layer": ("ngsan", {"geometry_per_layer": True}),
    "unscaled geometry": ("gsan", {"geometry_scaled": False, "geometry": "content+query"}),
    "norms first": ("ngsan", {"norm_first": True}),
    "norms first, absolute": (
        "transformer",
        {"norm_first": True, "geometry": "absolute", "norm": "ln", "norm_on": "k"},
    ),
    "affine norms, unscaled geometry per layer": (
        "transformer",
        {"norm": "in_affine", "geometry": "content+query", "geometry_per_layer": True, "geometry_scaled": False},
    ),
    "halo windows, Chebyshev distances": (
        "mdsan",
        {
            "window": "halo",
            "distance": "chebyshev",
            "distance_scaling": "linear",
            "branch_layers": (1,),
            "query_head_dim": 4,
        },
    ),
    "Swin windows, relative geometry": (
        "mdsan",
        {
            "window": "swin",
            "distance": "euclidean",
            "distance_scaling": "quadratic",
            "distance_init": "one",
            "talking_heads": True,
            "geometry": "relative",
        },
    ),
}
# Any encoder with any attention, and any decoder: one line of configuration each.
MIXED = {
    "NG-SAN with branches": ("ngsan", {"branches": 3, "drop_branch": 0.4}),
    "NG-SAN with distances": ("ngsan", {"distance": "manhattan"}),
    "N-SAN with talking heads": ("nsan", {"talking_heads": True}),
    "Transformer with X-Linear attention": ("transformer", {"attention": "x_linear"}),
    "X-Linear attention with geometry and branches": (
        "transformer",
        {"attention": "x_linear", "geometry": "query", "branches": 2},
    ),
    "AoANet with geometry": ("aoanet", {"geometry": "query+content"}),
    "AoANet with normalized queries": ("aoanet", {"norm": "in"}),
    "AoANet with distances and branches": ("aoanet", {"distance": "euclidean", "branches": 2, "branch_layers": (2,)}),
    "AoANet with X-Linear attention": ("aoanet", {"attention": "x_linear"}),
    "AoANet with wide heads and batch norms": ("aoanet", {"multi_head_scale": 2, "use_bn": 2, "mean_feats": False}),
    "MD-SAN with normalized queries": ("mdsan", {"norm": "in", "geometry": "query"}),
    "X-LAN's encoder, Transformer's decoder": (
        "xlan",
        {"decoder": {"name": "transformer", "num_layers": 2, "ff_dim": 24}},
    ),
    "Transformer's encoder, X-LAN's decoder": (
        "transformer",
        {"norm": "bn", "decoder": {"name": "xlan", "mid_dim": 4}},
    ),
    "NG-SAN's encoder, AoANet's decoder": ("ngsan", {"decoder": "aoanet"}),
    "AoANet's encoder, X-Transformer's decoder": (
        "aoanet",
        {"decoder": {"name": "xtransformer", "decoder_layers": 2, "mid_dim": 4}, "geometry": "key"},
    ),
    "MD-SAN's encoder, Up-Down's decoder": (
        "mdsan",
        {"distance_scaling": "scalar", "decoder": {"name": "updown", "additive_dim": 12}},
    ),
    "MD-SAN's encoder, Transformer's decoder": ("mdsan", {"branches": 1, "decoder": "transformer"}),
    "NG-SAN's encoder, MD-SAN's decoder": ("ngsan", {"decoder": {"name": "mdsan", "num_layers": 1}}),
    "NG-SAN's encoder, Meshed decoder": ("ngsan", {"decoder": "meshed"}),
    "Meshed encoder, Transformer's decoder": ("meshed", {"decoder": "transformer", "branches": 2}),
    "halo windows, talking heads, as printed": (
        "mdsan",
        {"talking_heads": True, "window": "halo", "head_dim": 12, "variant": "paper"},
    ),
}
ORDERED = {
    "frames, Transformer": ("nsan", {"ordered": True}),
    "frames, AoA decoder": ("aoanet", {"num_layers": 0, "multi_head": False, "recurrent": True}),
    "frames, AoANet": ("aoanet", {"recurrent": True}),
}
"""Models of videos, which read the order of the frames."""
OWN = {"updown": {"dropout": 0.5}}  # it has none by default
TABLES = ("aoanet.table4", "xlan.table3", *(f"mdsan.table{number}" for number in (5, 7, 8, 9, 10, 11, 12)))
PAPER_ROWS = {
    name: (recipe.model, recipe.model_overrides)
    for name, recipe in all_recipes().items()
    if name.rpartition(".")[0] in TABLES or name.endswith("_paper")
}
"""Rows of the papers' ablations, and models as printed."""
CASES = {name: (name, OWN.get(name, {})) for name in legenda.list_models()} | PAPER_ROWS | VARIANTS | MIXED | ORDERED
REPRESENTATIVES = {
    "ngsan": "NG-SAN",
    "aoanet": "AoANet",
    "mdsan": "MD-SAN, Manhattan distances, dropped branches",
    "xlan": "X-LAN",
    "xtransformer": "X-Transformer",
    "updown": "additive attention to the features themselves, two LSTMs",
    "ort": "relative geometry, norm_first",
    "meshed": "memory slots, cross-attention to all layers",
    "coco.aoanet_paper": "AoANet as printed",
    "coco.mdsan_paper": "MD-SAN as printed",
    "coco.xlan_paper": "X-LAN as printed, one head, no activations",
    "xlan.table3.base": "additive attention in X-LAN, relu",
    "aoanet.table4.refine": "refiner without attention on attention, feed-forward networks, linear context",
    "aoanet.table4.lstm_aoa": "second LSTM with attention on attention",
    "mdsan.table11.heads_40": "dropped heads, heads of another size",
    "none on qk, content+query+key": "all geometric biases, no norm",
    "norms first, absolute": "norm_first, absolute geometry, layer norm of keys",
    "affine norms, unscaled geometry per layer": "geometry_per_layer, geometry_scaled, affine instance norm",
    "halo windows, Chebyshev distances": "window, distance, linear scaling, branch_layers, query_head_dim",
    "Swin windows, relative geometry": "window, distance, quadratic scaling, distance_init, talking_heads",
    "AoANet with wide heads and batch norms": "multi_head_scale, use_bn, mean_feats",
    "AoANet with distances and branches": "options of attention in another family, branch_layers",
    "X-Linear attention with geometry and branches": "attention = x_linear with its score bias",
    "X-LAN's encoder, Transformer's decoder": "decoder without a global feature",
    "Transformer's encoder, X-LAN's decoder": "decoder with a global feature, batch norm of queries",
    "NG-SAN's encoder, AoANet's decoder": "decoder by its name alone",
    "AoANet's encoder, X-Transformer's decoder": "decoder with options",
    "MD-SAN's encoder, Up-Down's decoder": "scalar scaling",
    "MD-SAN's encoder, Transformer's decoder": "a decoder whose layers are those of its model",
    "NG-SAN's encoder, MD-SAN's decoder": "MD-SAN's decoder on another encoder",
    "NG-SAN's encoder, Meshed decoder": "a decoder of all layers on another encoder",
    **dict.fromkeys(ORDERED, "order of the frames"),
}
"""The cases of `make test`, and why: the model of every paper and every value of an option once; others are slow."""


@functools.cache
def build_model(case: str) -> Captioner:
    """Return the small model of a case, made once."""
    name, options = CASES[case]
    entry = describe_model(name)
    fields = set(entry.config.model_fields)
    own = {key: SMALL[key] for key in SMALL if key in fields}
    if "num_layers" in entry.settings:
        own["num_layers"] = min(entry.settings["num_layers"], own["num_layers"])
    torch.manual_seed(0)
    model = legenda.create_model(name, **{**own, **options})
    for parameter in model.parameters():  # so that no bias is 0 and no scale 1
        parameter.data.add_(torch.randn_like(parameter) * 0.15)
    for module in model.modules():
        if isinstance(module, MaskedBatchNorm):
            nn.init.normal_(module.running_mean)
            nn.init.uniform_(module.running_var, 0.5, 2.0)
    return model.eval()


def run_steps(model, memory, tokens):
    """Return the logits of each position, read one step after the other, and the last state."""
    state, logits = model.decoder.init_state(memory, tokens.shape[1]), []
    for word in tokens.unbind(dim=-1):
        following, state = model.decoder.step(word, state, memory)
        logits.append(following)
    return torch.stack(logits, dim=2), state


def copy_layers(model, encoder, decoder):
    """Give the layers of torch's Transformer the weights of a model."""
    for layers, references, attentions in (
        (model.encoder.layers, encoder.layers, {"attention": "self_attn"}),
        (model.decoder.layers, decoder.layers, {"self_attn": "self_attn", "cross_attn": "multihead_attn"}),
    ):
        for layer, reference in zip(layers, references, strict=True):
            for own, other in attentions.items():
                own, other = getattr(layer, own), getattr(reference, other)
                other.in_proj_weight.copy_(torch.cat([own.query.weight, own.key.weight, own.value.weight]))
                other.in_proj_bias.copy_(torch.cat([own.query.bias, own.key.bias, own.value.bias]))
                other.out_proj.load_state_dict(own.output.state_dict())
            reference.linear1.load_state_dict(layer.feed_forward[0].state_dict())
            reference.linear2.load_state_dict(layer.feed_forward[3].state_dict())
            for number, name in enumerate([*attentions, "feed_forward"], start=1):
                norm = getattr(layer, f"{name}_residual").norm
                getattr(reference, f"norm{number}").load_state_dict(norm.state_dict())
