"""Padding is not computed: losses and gradients of the real positions are those of all positions."""

import copy

import pytest
import torch
from model_cases import FEATURES, REPRESENTATIVES, VOCABULARY, build_model

import legenda
from legenda import Regions
from legenda.attention import XLinearAttention

LENGTHS = {
    "ragged, a row of one token and one without": [[5, 1], [3, 5], [2, 0]],
    "an image without tokens": [[2, 4], [0, 0], [1, 1]],
    "equal": [[5, 5], [5, 5], [5, 5]],
    "shorter than the batch": [[2, 3], [3, 1], [1, 1]],
    "one row an image": [[4], [1], [5]],
}
DECODERS = {"ngsan", "aoanet", "mdsan", "xlan", "xtransformer", "updown", "meshed", "xlan.table3.base"} | {
    "coco.xlan_paper",
    "coco.aoanet_paper",
    "aoanet.table4.refine",
    "aoanet.table4.lstm_aoa",
}
"""Models with different decoders."""


def real_tokens(lengths: list[list[int]]) -> torch.Tensor:
    return torch.arange(max(5, *map(max, lengths))) < torch.tensor(lengths).unsqueeze(-1)


def gradients(model, loss: torch.Tensor) -> dict[str, torch.Tensor]:
    model.zero_grad()
    loss.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def assert_same_without_padding(model, regions: Regions, tokens: torch.Tensor, real: torch.Tensor) -> None:
    weights = torch.randn(int(real.sum()), model.config.vocab_size, dtype=torch.float64)
    expected = model(regions, tokens)[real]
    found = model(regions, tokens, real)
    torch.testing.assert_close(found, expected, atol=1e-9, rtol=0)
    before, after = (gradients(model, (logits * weights).sum()) for logits in (expected, found))
    assert before.keys() == after.keys()
    for name, gradient in before.items():
        torch.testing.assert_close(
            after[name], gradient, atol=1e-7, rtol=1e-6, msg=lambda text, name=name: f"{name}: {text}"
        )


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[] if case in DECODERS else pytest.mark.slow) for case in REPRESENTATIVES]
)
def test_logits_and_gradients_are_those_of_all_positions(case, lengths, draw_regions):
    model = build_model(case).double()
    regions = draw_regions((5, 3, 1), dim=FEATURES).to(torch.float64)
    real = real_tokens(lengths)
    tokens = torch.randint(VOCABULARY, real.shape, generator=torch.Generator().manual_seed(2)).masked_fill(~real, 0)
    try:
        assert_same_without_padding(model, regions, tokens, real)
    finally:
        model.float()


@pytest.mark.parametrize("chunk", [XLinearAttention.chunk_size, 4])
def test_padding_is_hidden_where_a_decoder_has_a_token_for_it(chunk, draw_regions):
    real = real_tokens(LENGTHS["ragged, a row of one token and one without"])
    for name, options in (("mdsan", {"pad_token_id": 3, "num_layers": 1}), ("xtransformer", {"num_layers": 0})):
        torch.manual_seed(0)
        sizes = {"dim": 8, "num_heads": 2, "ff_dim": 8, "vocab_size": VOCABULARY, "feature_dim": FEATURES}
        model = legenda.create_model(name, **sizes, **options).double().eval()
        for block in (part for part in model.modules() if isinstance(part, XLinearAttention)):
            block.chunk_size = chunk
        tokens = torch.randint(4, real.shape, generator=torch.Generator().manual_seed(2))  # padding inside rows too
        assert_same_without_padding(model, draw_regions((5, 3, 1), dim=FEATURES).to(torch.float64), tokens, real)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["aoanet", "mdsan", "updown", "xlan", "xtransformer"])
def test_models_as_wide_as_in_their_papers(name, draw_regions):
    torch.manual_seed(0)
    layers = {"xlan": {"num_layers": 1}, "xtransformer": {"num_layers": 1, "decoder_layers": 2}, "updown": {}}
    options = layers.get(name, {"num_layers": 1})
    model = legenda.create_model(name, vocab_size=300, feature_dim=64, **options).double().eval()
    real = torch.arange(17) < torch.tensor([[17, 9, 1], [11, 10, 10]]).unsqueeze(-1)
    tokens = torch.randint(1, 300, real.shape).masked_fill(~real, 0)
    assert_same_without_padding(model, draw_regions((9, 9), dim=64).to(torch.float64), tokens, real)


@pytest.mark.parametrize("case", ["ngsan", "xlan", "aoanet", "updown", "xtransformer"])
def test_half_precision_computes_the_same_positions(case, draw_regions):
    model, regions = build_model(case), draw_regions((5, 3, 1), dim=FEATURES)
    real = real_tokens(LENGTHS["ragged, a row of one token and one without"])
    tokens = torch.randint(VOCABULARY, real.shape, generator=torch.Generator().manual_seed(2))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected, found = model(regions, tokens)[real], model(regions, tokens, real)
        before, after = (gradients(model, logits.float().square().mean()) for logits in (expected, found))
    torch.testing.assert_close(found.float(), expected.float(), atol=0.1, rtol=0.1)
    for name, gradient in before.items():
        assert (after[name] - gradient).norm() <= 0.1 * gradient.norm() + 1e-2, name


def test_hooks_of_a_layer_in_the_loop_are_called(draw_regions):
    model, real = copy.deepcopy(build_model("xlan")).double(), real_tokens([[5, 1], [3, 5], [2, 4]])
    regions, tokens = draw_regions((5, 3, 1), dim=FEATURES).to(torch.float64), torch.ones(real.shape, dtype=torch.long)
    plain = model(regions, tokens, real)
    hook = model.decoder.to_context.register_forward_hook(lambda *call: 2 * call[-1])
    assert_same_without_padding(model, regions, tokens, real)
    assert not torch.equal(model(regions, tokens, real), plain)
    hook.remove()
    calls = []
    model.decoder.to_context.register_full_backward_hook(lambda *_: calls.append(1))
    model(regions, tokens, real).sum().backward()
    assert calls
