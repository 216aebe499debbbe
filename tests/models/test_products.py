"""Products of loops give what the plain ones give: values, gradients of inputs, weights and biases."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from legenda.models import packing
from legenda.models.products import repeated_products

ROWS = 8


@pytest.fixture(autouse=True)
def small_matrices_are_laid_out(monkeypatch):
    monkeypatch.setattr(packing, "_LARGE", 1)


def loop(layer: nn.Linear, first: torch.Tensor, steps: int) -> torch.Tensor:
    """A little recurrent network: each step reads the one before."""
    states = [first]
    for _ in range(steps):
        states.append(torch.tanh(layer(states[-1]) + F.linear(states[-1], layer.weight[:, :]) * 0.5))
    return torch.stack(states[1:])


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(3, 6), (2, 4, 6)])
def test_gradients_are_those_of_separate_products(bias, shape):
    torch.manual_seed(0)
    layer = nn.Linear(6, 6, bias=bias).double()
    first = torch.randn(*shape, dtype=torch.float64, requires_grad=True)
    inputs = [first, *layer.parameters()]
    plain = loop(layer, first, 5)
    expected = torch.autograd.grad(plain.square().sum(), inputs)
    with repeated_products(ROWS):
        gathered = loop(layer, first, 5)
    found = torch.autograd.grad(gathered.square().sum(), inputs)
    torch.testing.assert_close(gathered, plain, rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("rows", "half", "error"), [(50, False, 1e-4), (ROWS, True, 0.1)], ids=["single precision", "bfloat16"]
)
def test_gradients_through_matrices_that_are_laid_out(rows, half, error, monkeypatch):
    """There and back, each once."""
    if not packing._can_pack(torch.bfloat16 if half else torch.float32):
        pytest.skip("this torch has no such layouts for this processor")
    made, pack = [], packing._pack
    monkeypatch.setattr(packing, "_pack", lambda weight, rows: made.append(rows) or pack(weight, rows))
    torch.manual_seed(0)
    layer, first = nn.Linear(24, 24), torch.randn(rows, 24, requires_grad=True)
    inputs = [first, *layer.parameters()]
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
        plain = loop(layer, first, 5)
        with repeated_products(rows):
            gathered = loop(layer, first, 5)
    expected = torch.autograd.grad(plain.float().square().sum(), inputs)
    found = torch.autograd.grad(gathered.float().square().sum(), inputs)
    assert made == [rows] * 2 * (1 + 5)  # the layer's matrix, and what five steps take of it anew
    torch.testing.assert_close(gathered, plain, rtol=error, atol=error)
    for one, other in zip(found, expected, strict=True):
        assert (one - other).norm() <= error * other.norm()


def test_a_step_that_no_loss_reads_adds_nothing():
    torch.manual_seed(0)
    layer = nn.Linear(4, 4).double()
    x = torch.randn(2, 4, dtype=torch.float64)
    expected = torch.autograd.grad(layer(x).sum(), layer.weight)[0]
    with repeated_products(ROWS):
        used, _ = layer(x), layer(2 * x)
    torch.testing.assert_close(torch.autograd.grad(used.sum(), layer.weight)[0], expected)


def test_one_weight_with_and_without_its_bias():
    torch.manual_seed(0)
    layer = nn.Linear(4, 4).double()
    x = torch.randn(2, 4, dtype=torch.float64)
    plain = layer(x) * F.linear(x, layer.weight)
    expected = torch.autograd.grad(plain.sum(), list(layer.parameters()))
    with repeated_products(ROWS):
        gathered = layer(x) * F.linear(x, layer.weight)
    torch.testing.assert_close(gathered, plain)
    torch.testing.assert_close(torch.autograd.grad(gathered.sum(), list(layer.parameters())), expected)


def test_two_passes_before_one_way_back():
    torch.manual_seed(0)
    layer = nn.Linear(4, 4).double()
    one, other = torch.randn(2, 3, 4, dtype=torch.float64).unbind()
    expected = torch.autograd.grad((layer(one) * layer(other)).sum(), list(layer.parameters()))
    with repeated_products(ROWS):
        first = layer(one)
    with repeated_products(ROWS):
        second = layer(other)
    found = torch.autograd.grad((first * second).sum(), list(layer.parameters()))
    torch.testing.assert_close(found, expected)


def test_frozen_weights_and_autocast():
    torch.manual_seed(0)
    layer = nn.Linear(8, 8)
    x = torch.randn(5, 8, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        plain = layer(x)
        with repeated_products(ROWS):
            gathered = layer(x)
    assert gathered.dtype is plain.dtype is torch.bfloat16
    torch.testing.assert_close(gathered, plain)
    (found,) = torch.autograd.grad(gathered.float().sum(), layer.weight)
    (expected,) = torch.autograd.grad(plain.float().sum(), layer.weight)
    assert found.dtype is torch.float32
    torch.testing.assert_close(found, expected, rtol=2e-2, atol=2e-2)
    layer.requires_grad_(False)
    with repeated_products(ROWS):
        frozen = layer(x)
    torch.testing.assert_close(torch.autograd.grad(frozen.sum(), x)[0], layer.weight.sum(0).expand_as(x))


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_linear_maps_without_gradients(dtype, bias, mode):
    """Of any number of rows, however it changes, for whole matrices and parts of them."""
    torch.manual_seed(0)
    layer = nn.Linear(24, 16, bias=bias).to(dtype)
    whole, term = layer.weight.detach().double(), layer.bias.detach().double() if bias else 0.0
    error = {"rtol": 2e-2, "atol": 2e-2} if dtype is torch.bfloat16 else {"rtol": 1e-5, "atol": 1e-6}
    with mode(), repeated_products(ROWS):
        for rows in ((1,), (1,), (10,), (10,), (2, 5), (3, 10), (3, 10), (10,), (0,), (0,), (8,), (2, 4)):
            x = torch.randn(*rows, 48).to(dtype)[..., ::2]
            torch.testing.assert_close(layer(x).double(), x.double() @ whole.T + term, **error)
            found = F.linear(x[..., 8:], layer.weight[:, 8:], layer.bias)
            torch.testing.assert_close(found.double(), x[..., 8:].double() @ whole[:, 8:].T + term, **error)


def test_two_matrices_that_come_to_one_place_are_not_one():
    x = torch.ones(8, 4)
    with torch.no_grad(), repeated_products(ROWS):
        found = [F.linear(x, torch.full((2, 4), float(number)))[0, 0].item() for number in range(50)]
    assert found == [4.0 * number for number in range(50)]


@pytest.mark.parametrize("searching", [True, False])
def test_autocast_in_a_loop(searching):
    torch.manual_seed(0)
    layer, x = nn.Linear(16, 16), torch.randn(8, 16)
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.set_grad_enabled(not searching):
        expected = layer(x)
        with repeated_products(ROWS):
            for _ in range(3):
                found = layer(x)
                assert found.dtype is torch.bfloat16
                torch.testing.assert_close(found, expected, rtol=2e-2, atol=2e-2)
            if searching:
                with torch.autocast("cpu", enabled=False):
                    assert layer(x).dtype is torch.float32
