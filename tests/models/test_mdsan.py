"""MD-SAN: its sizes, its variants, what pads and rows of zeros mean, and its attention in other models."""

import pytest
import torch
from model_cases import copy_layers, run_steps
from torch import nn

import legenda
from legenda import Regions
from legenda.attention import sinusoids
from legenda.papers import get_recipe

WORDS, FEATURES, DIM, HEADS = 11, 6, 16, 2
PAPER = get_recipe("coco.mdsan_paper").model_overrides
SMALL = {"vocab_size": WORDS, "feature_dim": FEATURES, "dim": DIM, "num_heads": HEADS, "num_layers": 2, "ff_dim": 24}


def build(name, **options):
    torch.manual_seed(0)
    model = legenda.create_model(name, **SMALL, **options).double().eval()
    for parameter in model.parameters():
        parameter.data.add_(torch.randn_like(parameter) * 0.2)
    return model


@pytest.mark.parametrize(
    ("row", "parameters", "printed"),
    [
        ("table13.full", 39_884_432, 39.9),
        ("table13.dsa", 33_574_448, 33.6),
        ("table13.plain", 33_574_400, 33.6),
        ("table13.msa", 39_884_432 - 144, 39.9),
        ("table5.m2", 36_729_440 - 96, 36.7),
        ("table5.m4", 43_039_424 - 192, 43.0),
        ("table10.talking", 33_574_400 + 3 * 128, 33.6),
        ("table10.heads", 33_574_400 + 3 * (3 * 1024 * 513 + 512 * 1024), 39.9),
        ("table11.heads_40", 39_875_072, 39.9),
        ("table10.large", 39_875_072, 39.9),
        ("table10.extendqk", 33_574_400 + 3 * 2 * 3584 * 513, 44.6),
        ("table12.msa_2", 33_574_448 + 2 * (1_050_624 + 1024 + 16), 35.7),
        ("table12.msa_13", 33_574_448 + 4 * (1_050_624 + 1024 + 16), 37.8),
        ("table9.swin", 33_574_400, 33.6),
        ("table7.relpe", 33_574_400 + 3 * 8 * 65, 33.6),
    ],
)
def test_parameters_of_tables_5_to_13(row, parameters, printed):
    recipe = get_recipe(f"mdsan.{row}")
    with torch.device("meta"):
        model = legenda.create_model(recipe.model, vocab_size=10201, **recipe.model_overrides)
    assert model.parameter_count == parameters
    assert round(parameters / 1e6, 1) == printed


@torch.no_grad()
def test_as_printed_and_without_its_attention_it_is_torchs_transformer(draw_regions):
    model = build("mdsan", **PAPER, distance="none", branches=1)
    shape = {"d_model": DIM, "nhead": HEADS, "dim_feedforward": 24, "batch_first": True}
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(**shape), 2, enable_nested_tensor=False)
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(**shape), 2)
    encoder.double().eval()
    decoder.double().eval()
    copy_layers(model, encoder, decoder)
    for module in model.modules():
        module.scale_by_dim = False  # torch's divides by sqrt(d_k)
    regions = draw_regions((4, 3), dim=FEATURES).to(dtype=torch.float64)
    tokens = torch.randint(WORDS, (2, 1, 5), generator=torch.Generator().manual_seed(1))
    padding = ~regions.mask_or_ones
    states = encoder(
        model.encoder.input_norm(model.encoder.input(regions.features).relu()), src_key_padding_mask=padding
    )
    words = model.decoder.embedding(tokens.squeeze(1)) + sinusoids(torch.arange(1, 6).double(), DIM)
    later = torch.ones(5, 5, dtype=torch.bool).triu(1)
    decoded = decoder(words, states, tgt_mask=later, memory_key_padding_mask=padding)
    assert model.decoder.output.bias is None
    torch.testing.assert_close(model(regions, tokens).squeeze(1), model.decoder.output(decoded))


def test_what_the_variants_change():
    released, paper = build("mdsan"), build("mdsan", **PAPER)
    assert released.config.branch_norm
    assert hasattr(released.decoder.layers[0].self_attn_residual, "inner")
    assert not paper.config.branch_norm
    assert not hasattr(paper.decoder.layers[0].self_attn_residual, "inner")
    assert not hasattr(paper.decoder.layers[0].cross_attn_residual, "inner")
    assert build("mdsan", **PAPER, branch_residual=True).config.branch_norm
    fresh = legenda.create_model("mdsan", **SMALL, **PAPER).decoder.position_table
    torch.testing.assert_close(fresh, sinusoids(torch.arange(55).float(), DIM))
    random = legenda.create_model("mdsan", vocab_size=WORDS, feature_dim=FEATURES).decoder.position_table
    bound = (6 / (55 + 512)) ** 0.5
    assert random.shape == (55, 512)
    assert random.abs().max().item() == pytest.approx(bound, rel=1e-3)
    assert random.std().item() == pytest.approx(bound / 3**0.5, rel=0.02)


@torch.no_grad()
def test_tokens_do_not_attend_to_padding(draw_regions):
    model, plain = build("mdsan", pad_token_id=1), build("mdsan")
    regions = draw_regions((4, 3), dim=FEATURES).to(dtype=torch.float64)
    memory = model.encode(regions)
    tokens = torch.tensor([[[2, 5, 1, 6, 1, 7], [1, 1, 4, 5, 6, 7]]]).expand(2, -1, -1)
    logits = model.decoder(tokens, memory)
    assert (logits[tokens == 1] == 0).all()
    torch.testing.assert_close(run_steps(model, memory, tokens)[0], logits)
    model.decoder.embedding.weight[1] += 3.0
    torch.testing.assert_close(model.decoder(tokens, memory), logits)
    words = torch.randint(2, WORDS, (2, 2, 6), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(model.decoder(words, memory), plain(regions, words))


@torch.no_grad()
def test_rows_of_zeros_are_padding(draw_regions):
    model = build("mdsan")
    regions = draw_regions((5, 5, 5), dim=FEATURES).to(dtype=torch.float64)
    tokens = torch.randint(WORDS, (3, 1, 4), generator=torch.Generator().manual_seed(0))
    mask = torch.tensor([[True] * 5, [True, False, True, True, False], [False] * 5])
    zeros = Regions(regions.features * mask.unsqueeze(-1), regions.boxes)
    found = model(zeros, tokens)
    masked = Regions(regions.features[:2], regions.boxes[:2], mask[:2])
    torch.testing.assert_close(found[:2], model(masked, tokens[:2]))
    assert torch.equal(model.encode(zeros).mask[:2], mask[:2])
    assert found.isfinite().all()
    kept = build("mdsan", zero_rows_are_padding=False)
    assert kept.encode(zeros).mask.all()
    assert not torch.allclose(kept(zeros, tokens)[1], found[1])


def test_scores_of_the_printed_variant_are_divided_by_the_width_of_the_model():
    model = build("mdsan", variant="paper", distance="none", branches=1, drop_branch=0.0, zero_rows_are_padding=False)
    attentions = [module for module in model.modules() if isinstance(module, legenda.attention.MultiHeadAttention)]
    assert len(attentions) == 6
    x = torch.randn(1, 5, DIM, dtype=torch.float64)
    for attention in attentions:
        q, k, v = (
            layer(x).unflatten(-1, (HEADS, -1)).transpose(1, 2)
            for layer in (attention.query, attention.key, attention.value)
        )
        weights = (q @ k.transpose(-2, -1) / DIM**0.5).softmax(dim=-1)  # Eq. 2
        expected = attention.output((weights @ v).transpose(1, 2).flatten(2))
        torch.testing.assert_close(attention(x, x, x).values, expected)
    released = build("mdsan")
    assert not any(getattr(module, "scale_by_dim", False) for module in released.modules())
