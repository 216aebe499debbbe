"""Linear layers by oneDNN's kernels give the products and gradients of plain ones, and follow changes of weights."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from legenda import machine, packed_weights
from legenda.models.lstm import WordLSTM
from legenda.models.x_linear import ConcatUpdate
from legenda.packed_weights import OneDNNLinear, linear, pack_weights


@pytest.fixture(params=[True, False], autouse=True)
def slow_mkl(request, monkeypatch):
    """On processors where MKL is slow and where it is not."""
    monkeypatch.setattr(packed_weights, "has_slow_mkl", lambda: request.param)
    return request.param


@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 1e-5), (torch.bfloat16, 0.01)])
@pytest.mark.parametrize("bias", [True, False])
def test_products_are_those_of_the_layer(dtype, error, bias):
    torch.manual_seed(0)
    layer, x = nn.Linear(96, 64, bias=bias), torch.randn(5, 96, 3).transpose(1, 2)
    expected = layer(x)
    pack_weights(layer, dtype)
    with torch.no_grad():
        found = layer(x)
        assert layer(x[:0]).shape == (0, 3, 64)
    assert found.dtype == torch.float32
    assert ((found - expected).norm() / expected.norm()).item() < error
    assert torch.equal(layer(x), expected)  # with gradients
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        assert layer(x).dtype == torch.bfloat16


def test_new_weights_are_packed_again():
    layer, x = nn.Linear(64, 32), torch.randn(4, 64)
    pack_weights(layer)
    with torch.no_grad():
        before = layer(x)
        layer.weight.mul_(2)
        torch.testing.assert_close(layer(x) - layer.bias, 2 * (before - layer.bias))
        layer.double()
        assert layer(x.double()).dtype == torch.float64


def test_a_change_of_any_parameter_counts():
    lstm, x = WordLSTM([16, 16], 16), torch.randn(4, 16)
    pack_weights(lstm, torch.bfloat16)
    with torch.no_grad():
        before = [linear(x) for linear in lstm.linear_maps()]
        lstm.weight_hh.zero_()
        lstm.bias_hh.add_(100)
        after = [linear(x) for linear in lstm.linear_maps()]
    assert (after[0] - before[0]).min().item() > 98
    assert torch.equal(after[1], before[1])
    assert not after[2].any()


def _update(update: ConcatUpdate, x: torch.Tensor) -> torch.Tensor:
    return update(x[:1], x)


def _gates(lstm: WordLSTM, x: torch.Tensor) -> torch.Tensor:
    map_words, map_hidden = lstm.linear_maps()
    return map_words(x) + map_hidden(x)


@pytest.mark.parametrize(
    ("create", "call"),
    [
        (lambda: nn.Linear(64, 32), lambda layer, x: layer(x)),
        (lambda: ConcatUpdate(64, bias=True, dropout=0.0), _update),
        (lambda: WordLSTM([64], 64), _gates),
    ],
    ids=["Linear", "ConcatUpdate", "WordLSTM"],
)
def test_fused_optimizers_change_the_packed_weights(create, call):
    layer, x = create(), torch.randn(8, 64)
    pack_weights(layer)
    with torch.no_grad():
        before = call(layer, x)
    call(layer, x).sum().backward()
    torch.optim.Adam(layer.parameters(), lr=0.1, fused=True).step()  # without a new version of the weights
    plain = create()
    plain.load_state_dict(layer.state_dict())
    with torch.no_grad():
        expected = call(plain, x)
        assert not torch.allclose(expected, before)
        torch.testing.assert_close(call(layer, x), expected)


def test_a_copy_computes_with_its_own_weights():
    layer, x = nn.Sequential(nn.Linear(64, 32)), torch.randn(4, 64)
    pack_weights(layer)
    with torch.no_grad():
        before = layer(x)
        other = copy.deepcopy(layer)
        other[0].weight.zero_()
        assert torch.equal(other(x), other[0].bias.expand(4, -1))
        assert torch.equal(layer(x), before)


def test_parts_of_a_weight_are_packed():
    update, x = ConcatUpdate(32, bias=True, dropout=0.0), torch.randn(2, 3, 32)
    attended = torch.randn(2, 1, 32)
    expected = update(attended, x)
    pack_weights(update, torch.bfloat16)
    with torch.no_grad():
        error = (update(attended, x) - expected).abs().max().item()
    assert 1e-6 < error < 0.05


@pytest.mark.parametrize("bias", [True, False])
def test_gradients_are_those_of_the_layer(bias):
    torch.manual_seed(0)
    layer, x = nn.Linear(320, 256, bias=bias), torch.randn(8, 320, 4, requires_grad=True)
    wanted = [x, *layer.parameters()]

    def gradients():
        loss = layer(x.transpose(1, 2)).square().sum()
        first = torch.autograd.grad(loss, wanted, create_graph=True)
        return [*first, *torch.autograd.grad(sum(each.square().sum() for each in first), wanted)]

    expected = gradients()
    pack_weights(layer)
    for found, reference in zip(gradients(), expected, strict=True):
        assert ((found - reference).norm() / reference.norm()).item() < 1e-5


def test_parts_of_a_weight_have_gradients():
    torch.manual_seed(0)
    update, x, attended = ConcatUpdate(256, bias=True, dropout=0.0), torch.randn(32, 3, 256), torch.randn(32, 1, 256)
    results = []
    for _ in range(2):
        update(attended, x).square().sum().backward()
        results.append(update.linear.weight.grad)
        update.zero_grad()
        pack_weights(update)
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-4)


def test_weights_with_gaps_in_memory_are_multiplied():
    torch.manual_seed(0)
    x, weight = torch.randn(32, 2, 600)[:, 0, ::2], torch.randn(300, 600).T[::2]
    torch.testing.assert_close(linear(x, weight), F.linear(x, weight), rtol=1e-4, atol=1e-4)
    assert linear(x.bfloat16(), weight.bfloat16()).dtype == torch.bfloat16


def test_logits_are_computed_in_float32():
    model = nn.ModuleDict({"decoder": nn.ModuleDict({"output": nn.Linear(64, 32), "inner": nn.Linear(64, 32)})})
    pack_weights(model, torch.bfloat16)
    dtypes = {name: layer.forward.dtype for name, layer in model["decoder"].items()}
    assert dtypes == {"output": torch.float32, "inner": torch.bfloat16}


def test_small_models_are_trained_by_plain_products():
    torch.manual_seed(0)
    layer, x = nn.Linear(128, 256), torch.randn(4000, 128)
    layer(x).square().sum().backward()
    expected = [parameter.grad.clone() for parameter in layer.parameters()]
    layer.zero_grad()
    pack_weights(layer)
    layer(x).square().sum().backward()
    assert all(torch.equal(parameter.grad, grad) for parameter, grad in zip(layer.parameters(), expected, strict=True))


def test_onednn_trains_large_layers_only_where_mkl_is_slow(slow_mkl):
    layer = nn.Linear(256, 256)
    pack_weights(layer)
    (product, _), *_ = layer(torch.randn(64, 256)).grad_fn.next_functions
    assert (product is not None and product.name() == "OneDNNLinearBackward") == slow_mkl


def test_few_rows_are_multiplied_by_plain_products_where_mkl_is_fast(slow_mkl, monkeypatch):
    torch.manual_seed(0)
    layer, rows = nn.Linear(64, 32), []
    monkeypatch.setattr(packed_weights, "multiply", lambda x, *_: rows.append(len(x)) or x[:, :32])
    pack_weights(layer)
    with torch.no_grad():
        for number in (1, 3, 4, 50):
            layer(torch.randn(number, 64))
    assert rows == ([1, 3, 4, 50] if slow_mkl else [4, 50])


@pytest.mark.parametrize(("vendor", "expected"), [("AuthenticAMD", True), ("GenuineIntel", False)])
def test_mkl_is_slow_on_other_processors_than_intels(monkeypatch, vendor, expected):
    monkeypatch.undo()
    monkeypatch.setattr(machine, "_cpu_info", {"vendor_id": vendor}.get)
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
    assert packed_weights.has_slow_mkl() is expected
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: False)
    assert not packed_weights.has_slow_mkl()


def test_builds_of_torch_without_mkl_pack_bfloat16_only(monkeypatch):
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: False)
    for dtype, expected in ((torch.float32, []), (torch.bfloat16, ["inner"])):
        model = nn.ModuleDict({"decoder": nn.ModuleDict({"output": nn.Linear(8, 8), "inner": nn.Linear(8, 8)})})
        pack_weights(model, dtype)
        assert [name for name, layer in model["decoder"].items() if "forward" in vars(layer)] == expected


def test_builds_of_torch_without_onednn_multiply_by_plain_products(monkeypatch):
    torch.manual_seed(0)
    x, weight = torch.randn(64, 256), torch.randn(256, 256)
    monkeypatch.setattr(OneDNNLinear, "apply", lambda *_: pytest.fail("oneDNN is not there"))
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert torch.equal(linear(x, weight), F.linear(x, weight))
