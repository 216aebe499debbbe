"""The Transformer of NG-SAN against torch's own, and what its options change."""

import math

import pytest
import torch
from model_cases import copy_layers
from torch import nn

import legenda
from legenda.attention import sinusoids
from legenda.attention.geometry import absolute_geometry

DIM, HEADS, LAYERS, INNER, WORDS, FEATURES = 16, 2, 2, 24, 11, 6
OPTIONS = {"vocab_size": WORDS, "feature_dim": FEATURES, "dim": DIM, "num_heads": HEADS, "num_layers": LAYERS}


def build(name, **options):
    torch.manual_seed(0)
    model = legenda.create_model(name, **OPTIONS, ff_dim=INNER, **options).double().eval()
    for parameter in model.parameters():
        parameter.data.add_(torch.randn_like(parameter) * 0.2)
    return model


@torch.no_grad()
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("absolute", [False, True])
def test_it_is_torchs_transformer(draw_regions, norm_first, absolute):
    model = build("transformer", norm_first=norm_first, geometry="absolute" if absolute else "none")
    shape = {"d_model": DIM, "nhead": HEADS, "dim_feedforward": INNER, "batch_first": True, "norm_first": norm_first}
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(**shape), LAYERS, nn.LayerNorm(DIM), enable_nested_tensor=False
    )
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(**shape), LAYERS, nn.LayerNorm(DIM))
    encoder.double().eval()
    decoder.double().eval()
    copy_layers(model, encoder, decoder)
    encoder.norm.load_state_dict(model.encoder.norm.state_dict())
    decoder.norm.load_state_dict(model.decoder.norm.state_dict())

    regions = draw_regions((4, 3), dim=FEATURES).to(dtype=torch.float64)
    tokens = torch.randint(WORDS, (2, 3, 5), generator=torch.Generator().manual_seed(1))
    padding = ~regions.mask_or_ones
    x = model.encoder.input(regions.features).relu()
    if absolute:
        x = x + absolute_geometry(regions.boxes, DIM)
    states = encoder(x, src_key_padding_mask=padding)
    words = model.decoder.embedding(tokens) * math.sqrt(DIM) + sinusoids(torch.arange(5).double(), DIM)
    decoded = decoder(
        words.flatten(0, 1),
        states.repeat_interleave(3, dim=0),
        tgt_mask=torch.ones(5, 5, dtype=torch.bool).triu(1),
        memory_key_padding_mask=padding.repeat_interleave(3, dim=0),
    )
    torch.testing.assert_close(model(regions, tokens), model.decoder.output(decoded).unflatten(0, (2, 3)))
    torch.testing.assert_close(model.encode(regions).states[regions.mask_or_ones], states[regions.mask_or_ones])


@torch.no_grad()
@pytest.mark.parametrize("geometry", ["query", "key", "content"])
def test_unscaled_geometry_is_geometry_with_larger_weights(draw_regions, geometry):
    scaled, unscaled = (build("transformer", geometry=geometry, geometry_scaled=flag) for flag in (True, False))
    regions = draw_regions((4, 3), dim=FEATURES).to(dtype=torch.float64)
    assert not torch.allclose(scaled.encode(regions).states, unscaled.encode(regions).states)
    for layer in scaled.encoder.layers:
        for parameter in layer.attention.score_bias.parameters():
            parameter.mul_(math.sqrt(DIM // HEADS))
    torch.testing.assert_close(scaled.encode(regions).states, unscaled.encode(regions).states)
