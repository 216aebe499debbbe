"""X-LAN and X-Transformer: sizes counted from the release, the paper's equations written out, and memory."""

import pytest
import torch
from torch.nn import functional as F

from legenda.errors import LegendaError
from legenda.models import Captioner
from legenda.models.xlan import XLanConfig
from legenda.models.xtransformer import XTransformerConfig

WORDS = 9488
PAPER = {"variant": "paper"}
SMALL = {"vocab_size": 11, "feature_dim": 6, "dim": 16, "num_heads": 2, "num_layers": 2}


def create(config):
    with torch.device("meta"):
        return Captioner(config)


def test_parameters_of_the_releases():
    """Specification, section 9."""
    assert create(XLanConfig(vocab_size=WORDS)).parameter_count == 75_189_781
    assert create(XTransformerConfig(vocab_size=WORDS)).parameter_count == 137_521_826


D, D_C = 1024, 512
BLOCK = 4 * D * (D + 1) + 4 * 2 * D + (64 * 129 + 65 + 128 * 65)
"""A released block: four embeddings with GroupNorm, W_B, w_b and W_e of one head."""


@pytest.mark.parametrize(
    ("options", "parameters"),
    [
        # A layer: a block, W of Eq. 8 with its LayerNorm, and its share of W_G.
        *(({"num_layers": n}, 75_189_781 - (4 - n) * (BLOCK + 2 * D * D + D + 2 * D + D * D)) for n in range(5)),
        # The ELU has no parameters (section 4.3, "in a parameter-free fashion").
        ({"act": "relu"}, 75_189_781),
        # W_k, W_q and W_a of Eq. 1 instead of a block.
        ({"attention": "conventional"}, 75_189_781 - BLOCK + 2 * (D * D_C + D_C) + D_C + 1),
        # One head, no norm and no biases in the blocks; an update of the keys in all layers but the last; no norm after
        # W_G; no layer after the attention; the context's own columns in the LSTM.
        (
            PAPER,
            75_189_781
            - 5 * (BLOCK - (4 * D * D + D_C * D + D_C + D * D_C))
            + 3 * (2 * D * D + 2 * D)
            - 4 * D
            - D
            - 2 * D
            - (2 * D * D + D + 2 * D)
            + 4 * D * D,
        ),
    ],
)
def test_parameters_of_the_variants(options, parameters):
    assert create(XLanConfig(vocab_size=WORDS, **options)).parameter_count == parameters


@torch.no_grad()
def test_the_paper_written_out(draw_regions):
    """Equations 7, 8 and 10 and section 3.3.3, one image, one row and one step at a time."""
    torch.manual_seed(0)
    model = Captioner(XLanConfig(**{**SMALL, **PAPER, "num_layers": 3})).eval()
    encoder, decoder = model.encoder, model.decoder
    regions = draw_regions((5, 3), dim=6)
    tokens = torch.randint(11, (2, 3, 4), generator=torch.Generator().manual_seed(1))
    logits = model(regions, tokens)
    for image, n in enumerate((5, 3)):
        V = K = F.linear(regions.features[image, :n], encoder.input.weight, encoder.input.bias)
        v = V.mean(dim=0)
        seen = [v]
        for m, layer in enumerate(encoder.layers):
            v = layer.attention(v.view(1, 1, -1), K[None], V[None]).values.view(-1)
            V = update(layer.update_values, v, V)
            K = K if m == 2 else update(layer.update_keys, v, K)
            seen.append(v)
        whole = encoder.global_feature.weight @ torch.cat(seen)
        for row in tokens[image]:
            h = c = context = torch.zeros(16)
            for t, word in enumerate(row):
                x = torch.cat([decoder.embedding.weight[word], whole, context])
                h, c = decoder.lstm(x, (h, c))
                v_d = decoder.attention[0](h.view(1, 1, -1), V[None], V[None]).values.view(-1)
                context = F.glu(decoder.to_context(torch.cat([v_d, h])), dim=-1)
                found = logits[image, (tokens[image] == row).all(dim=1).nonzero()[0, 0], t]
                torch.testing.assert_close(found, decoder.output(context), atol=1e-5, rtol=0)


def update(part, attended, x):
    wide = torch.cat([attended.expand_as(x), x], dim=-1)
    return part.norm(F.relu(wide @ part.linear.weight.T) + x)


def test_no_token_attends_to_an_end_inside_a_row(draw_regions):
    """X-Transformer masks id 0 after the first place (specification of the release, section 3.3)."""
    torch.manual_seed(0)
    model = Captioner(XTransformerConfig(**SMALL, ff_dim=24, decoder_layers=2)).eval()
    kept = []
    model.decoder.embedding.register_forward_hook(lambda _module, _inputs, embedded: kept.append(embedded))
    logits = model(draw_regions((5,), dim=6), torch.tensor([[[0, 4, 0, 7, 0]]]))[0, 0]
    for place, read in enumerate(([0], [0, 1], [0, 1, 2], [0, 1, 3], [0, 1, 3, 4])):
        (gradient,) = torch.autograd.grad(logits[place].square().sum(), kept[0], retain_graph=True)
        sizes = gradient[0, 0].abs().amax(dim=-1)
        assert (sizes > 1e-4).nonzero().flatten().tolist() == read
        assert sizes.count_nonzero() == len(read)


@pytest.mark.parametrize(
    ("config", "options", "complaint"),
    [
        (XLanConfig, {"num_heads": 3}, "multiple of num_heads=3"),
        (XLanConfig, {"num_heads": 16}, "num_heads=16.* set mid_dim"),
        (XTransformerConfig, {"dim": 15, "num_heads": 1}, "dim=15 must be even"),
    ],
)
def test_wrong_options_are_refused(config, options, complaint):
    with pytest.raises(LegendaError, match=complaint):
        config(**{**SMALL, **options})
