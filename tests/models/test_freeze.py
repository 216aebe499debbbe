"""Frozen and temporarily packed layers give the products of plain ones, from weights that cannot be stale."""

import copy

import pytest
import torch
from torch import nn

from legenda.models.layers import WordLSTM, freeze_linear, is_frozen, packed_linear
from legenda.models.xlan import ConcatUpdate

LAYERS = {
    "Linear": (lambda: nn.Linear(64, 32), lambda layer, x: layer(x)),
    "Linear without bias": (lambda: nn.Linear(64, 32, bias=False), lambda layer, x: layer(x)),
    "ConcatUpdate": (lambda: ConcatUpdate(64, bias=True, dropout=0.0), lambda layer, x: layer(x[:1], x)),
    "WordLSTM": (lambda: WordLSTM([64], 64), lambda layer, x: sum(product(x) for product in layer.linear_maps())),
}


@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 1e-5), (torch.bfloat16, 0.02)])
@pytest.mark.parametrize(("create", "call"), LAYERS.values(), ids=LAYERS)
@torch.no_grad()
def test_frozen_products_are_those_of_the_layer(create, call, dtype, error):
    torch.manual_seed(0)
    model, x = nn.Sequential(create()), torch.randn(5, 64)
    expected = call(model[0], x)
    freeze_linear(model, dtype, min_numel=0)
    y = call(model[0], x)
    assert y.dtype == torch.float32
    assert ((y - expected).norm() / expected.norm()).item() < error
    assert is_frozen(model)
    assert not any("weight" in name for name in model.state_dict() if "norm" not in name)
    assert torch.equal(call(copy.deepcopy(model)[0], x), y)


@pytest.mark.parametrize(("create", "call"), LAYERS.values(), ids=LAYERS)
@pytest.mark.parametrize("fused", [True, False])
def test_packed_products_follow_every_change_of_the_weights(create, call, fused):
    torch.manual_seed(0)
    layer, x = create(), torch.randn(5, 64)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.1, fused=fused)
    for _ in range(3):
        with torch.no_grad(), packed_linear(layer, min_numel=0):
            packed = call(layer, x)
        expected = call(layer, x)
        torch.testing.assert_close(packed, expected, atol=1e-5, rtol=1e-4)
        expected.square().sum().backward()
        optimizer.step()
        for parameter in layer.parameters():
            parameter.data.mul_(0.9)
    assert not is_frozen(layer)


def test_small_layers_stay_as_they_are():
    model = nn.Sequential(nn.Linear(64, 64))
    freeze_linear(model)
    assert model[0].weight is not None
    assert not is_frozen(model)
