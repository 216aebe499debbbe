"""Packed layers give the products of plain ones, from weights that cannot be stale, and leave the model whole."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import prune, spectral_norm, weight_norm

from legenda.compute import has_bf16
from legenda.models import packing
from legenda.models.layers import WordLSTM
from legenda.models.packing import PackedWeights
from legenda.models.xlan import ConcatUpdate

LAYERS = {
    "Linear": (lambda: nn.Linear(64, 32), lambda layer, x: layer(x)),
    "Linear without bias": (lambda: nn.Linear(64, 32, bias=False), lambda layer, x: layer(x)),
    "ConcatUpdate": (lambda: ConcatUpdate(64, bias=True, dropout=0.0), lambda layer, x: layer(x[:1], x)),
    "WordLSTM": (lambda: WordLSTM([64], 64), lambda layer, x: sum(product(x) for product in layer.linear_maps())),
}
every_layer = pytest.mark.parametrize(("create", "call"), LAYERS.values(), ids=LAYERS)


BF16 = pytest.mark.skipif(not has_bf16(), reason="needs a CPU with bfloat16 products")


def packed(model: nn.Module, weights: PackedWeights | None = None, **options: Any) -> nn.Module:
    """Small layers are packed too."""
    return packing.packed(model, weights or PackedWeights(min_numel=1), **options)


def is_packed(view: nn.Module) -> bool:
    return any(getattr(module, "packed", None) is not None for module in view.modules())


@every_layer
@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 1e-5), pytest.param(torch.bfloat16, 0.02, marks=BF16)])
@torch.no_grad()
def test_packed_products_are_those_of_the_layer(create, call, dtype, error):
    torch.manual_seed(0)
    model, x = nn.Sequential(create()), torch.randn(5, 64)
    expected = call(model[0], x)
    y = call(packed(model, dtype=dtype)[0], x)
    assert y.dtype == torch.float32
    assert ((y - expected).norm() / expected.norm()).item() < error
    assert not torch.equal(y, expected) or dtype == torch.float32
    assert torch.equal(call(model[0], x), expected)


@every_layer
@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("weights", [None, PackedWeights(min_numel=1)])
def test_packed_products_follow_every_change_of_the_weights(create, call, fused, weights):
    torch.manual_seed(0)
    layer, x = create(), torch.randn(5, 64)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.1, fused=fused)
    others = copy.deepcopy(layer.state_dict())
    changes = (
        lambda parameters: [parameter.data.mul_(0.9) for parameter in parameters],
        lambda parameters: [parameter.mul_(0.9) for parameter in parameters],
        lambda parameters: [parameter.numpy().fill(0.3) for parameter in parameters],
        lambda _: layer.load_state_dict(others),
        lambda parameters: [setattr(parameter, "data", torch.randn_like(parameter)) for parameter in parameters],
        lambda _: layer.load_state_dict(others, assign=True),
    )
    for change in changes:
        with torch.no_grad():
            packed_result = call(packed(layer, weights), x)
        expected = call(layer, x)
        torch.testing.assert_close(packed_result, expected, atol=1e-5, rtol=1e-4)
        optimizer.zero_grad()
        expected.square().sum().backward()
        optimizer.step()
        with torch.no_grad():
            torch.testing.assert_close(call(packed(layer, weights), x), call(layer, x), atol=1e-4, rtol=1e-4)
            change([parameter.detach() for parameter in layer.parameters()])
    with torch.no_grad():
        torch.testing.assert_close(call(packed(layer, weights), x), call(layer, x), atol=1e-5, rtol=1e-4)


@every_layer
def test_a_view_is_a_whole_module(create, call):
    torch.manual_seed(0)
    model, x = nn.Sequential(create()), torch.randn(5, 64)
    view = packed(model)
    assert is_packed(view)
    assert list(view.state_dict()) == list(model.state_dict())
    assert [*map(id, view.parameters())] == [*map(id, model.parameters())]
    call(view[0], x).sum().backward()
    gradients = [parameter.grad for name, parameter in model.named_parameters() if "norm" not in name]
    assert all(gradient is not None and gradient.any() for gradient in gradients)
    for other in (copy.deepcopy(view), pickle.loads(pickle.dumps(view))):
        assert not is_packed(other)
        with torch.no_grad():
            for parameter in other.parameters():
                parameter.zero_()
            assert not call(other[0], x).any() or isinstance(other[0], ConcatUpdate)
    with torch.no_grad():
        assert call(view[0], x).any()
        assert is_packed(packed(copy.deepcopy(view)))
        assert packed(view) is view


def test_copies_are_made_once_for_unchanged_weights():
    model, weights = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64)), PackedWeights(min_numel=1)
    with ThreadPoolExecutor(8) as pool:
        views = list(pool.map(lambda _: packed(model, weights), range(8)))

    def products(view: nn.Module) -> list[object]:
        return [layer.packed[0] for layer in view]

    first, second = products(views[0])
    assert first is not second
    assert all(products(view) == [first, second] for view in views)
    with torch.no_grad():
        model[0].bias[3] += 1
    changed, same = products(packed(model, weights))
    assert changed is not first
    assert same is second
    assert not {changed, same} & {*products(packed(model, copy.deepcopy(weights)))}


def test_lists_of_modules_are_of_the_view():
    model = nn.Sequential(nn.Linear(64, 64))
    model.members = [model[0]]
    view = packed(model)
    assert view.members[0] is view[0]
    assert model.members[0] is model[0]


@pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning")
@pytest.mark.parametrize(
    "change", [weight_norm, spectral_norm, lambda layer: prune.l1_unstructured(layer, "weight", 9)]
)
@torch.no_grad()
def test_layers_that_compute_their_weight_are_not_packed(change):
    model, x = nn.Sequential(change(nn.Linear(64, 32))).eval(), torch.randn(5, 64)
    for parameter in model.parameters():
        parameter.mul_(2)
    torch.testing.assert_close(packed(model)(x), model(x))


def test_small_layers_stay_as_they_are():
    model = nn.Sequential(nn.Linear(64, 64))
    assert packed(model, PackedWeights(min_numel=2**18)) is model
