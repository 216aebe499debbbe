"""Settings that X-LAN's loaders read from the tensors of a release, and tensors that do not fit."""

import pytest
import torch
from test_xlan import HEADS, ROWS, TABLE, assert_close, load, regions_of
from torch.nn import functional as F

from legenda import LegendaError

BLOCK = "attention.layers.0.encoder_attn"


def test_what_is_read_from_the_shapes(state, kind):
    found = load(kind, {f"module.{name}": value for name, value in state(kind).items()}).config
    assert (found.vocab_size, found.feature_dim, found.dim, found.num_heads, found.mid_dim) == (50, 64, 32, HEADS, 4)
    assert (found.num_layers, found.decoder_layers) == ((2, 1) if kind == "xlan" else (2, 2))
    assert found.region_norm == (kind == "xtransformer")


def test_options_say_what_shapes_cannot(state):
    assert load("xlan", state("xlan"), act="relu", alpha=1.0).config.act == "relu"


@torch.no_grad()
def test_x_lan_without_encoder_blocks(numbers, state):
    """The release's encoder without layers: W_G and its normalisation alone, over the mean region."""
    tensors = {
        name: value
        for name, value in state("xlan").items()
        if not name.startswith(("encoder_layers.layers.", "encoder_layers.bifeat", "encoder_layers.layer_norms"))
    }
    tensors["encoder_layers.proj.weight"] = tensors["encoder_layers.proj.weight"][:, :32].clone()
    model = load("xlan", tensors)
    given = numbers("xlan")
    memory = model.encode(regions_of(given))
    features, real = given["in/att_feats"], given["in/att_mask"].unsqueeze(-1)
    states = F.celu(F.linear(features, tensors["att_embed.0.weight"], tensors["att_embed.0.bias"]), 1.3)
    assert_close(memory.states * real, states * real, 1e-5)
    mean = (states * real).sum(dim=1) / real.sum(dim=1)
    fused = F.linear(mean, tensors["encoder_layers.proj.weight"], tensors["encoder_layers.proj.bias"])
    norm = (tensors[f"encoder_layers.layer_norm.{part}"] for part in ("weight", "bias"))
    assert_close(memory.global_feature, F.layer_norm(fused, (32,), *norm), 1e-5)


@torch.no_grad()
def test_two_blocks_in_x_lan_s_decoder(numbers, state):
    """The second block asks with what the first attended to; a second block that gives 0 leaves all as it was."""
    tensors = state("xlan")
    expected = load("xlan", dict(tensors))
    for name in [name for name in tensors if name.startswith(BLOCK)]:
        tensors[name.replace("layers.0", "layers.1")] = tensors[name].clone()
    for part in ("weight", "bias"):
        tensors[f"attention.layers.1.encoder_attn.in_proj_v1.2.{part}"].zero_()
    proj = tensors["attention.proj.weight"]
    tensors["attention.proj.weight"] = torch.cat([proj, torch.eye(32)], dim=1)
    model = load("xlan", tensors)
    assert model.config.decoder_layers == 2
    given = numbers("xlan")
    tokens = given["in/seq"].unflatten(0, (-1, ROWS))
    assert_close(model(regions_of(given), tokens), expected(regions_of(given), tokens), 1e-5)
    tensors["attention.layers.1.encoder_attn.in_proj_v1.2.bias"].fill_(0.5)
    moved = load("xlan", tensors)
    assert (moved(regions_of(given), tokens) - expected(regions_of(given), tokens)).abs().max() > 0.1


@torch.no_grad()
@pytest.mark.parametrize("place", [2, 3])
def test_a_norm_of_the_regions_stands_after_the_dropout_if_any(numbers, state, place):
    tensors = state("xlan")
    tensors[f"att_embed.{place}.weight"], tensors[f"att_embed.{place}.bias"] = torch.full((32,), 2.0), torch.ones(32)
    model = load("xlan", tensors)
    features = regions_of(numbers("xlan")).features
    x = F.celu(F.linear(features, tensors["att_embed.0.weight"], tensors["att_embed.0.bias"]), 1.3)
    found = model.encoder.norm(model.encoder.act(model.encoder.input(features)))
    assert_close(found, 2 * F.layer_norm(x, (32,)) + 1, 1e-5)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("xlan", f"{BLOCK}.in_proj_v1.2.bias"),
        ("xlan", "encoder_layers.proj.bias"),
        ("xtransformer", "decoder.layers.1.cross_att.attn_net.attention_last2.weight"),
        ("xtransformer", TABLE),
    ],
)
def test_a_missing_tensor_is_named(state, kind, name):
    tensors = state(kind)
    del tensors[name]
    with pytest.raises(LegendaError, match=f"released.pth lacks {name}"):
        load(kind, tensors)


@pytest.mark.parametrize("spoil", [lambda table: table[:, :0], lambda table: table + 0.01, lambda table: table[0]])
def test_a_table_of_other_positions_is_refused(state, spoil):
    tensors = state("xtransformer")
    with pytest.raises(LegendaError, match=TABLE):
        load("xtransformer", {**tensors, TABLE: spoil(tensors[TABLE])})
