"""Products of loops give what the plain ones give: values, gradients of inputs, weights and biases."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from legenda.models.products import repeated_products, thin_products


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
    with repeated_products():
        gathered = loop(layer, first, 5)
    found = torch.autograd.grad(gathered.square().sum(), inputs)
    torch.testing.assert_close(gathered, plain, rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_a_step_that_no_loss_reads_adds_nothing():
    torch.manual_seed(0)
    layer = nn.Linear(4, 4).double()
    x = torch.randn(2, 4, dtype=torch.float64)
    expected = torch.autograd.grad(layer(x).sum(), layer.weight)[0]
    with repeated_products():
        used, _ = layer(x), layer(2 * x)
    torch.testing.assert_close(torch.autograd.grad(used.sum(), layer.weight)[0], expected)


def test_one_weight_with_and_without_its_bias():
    torch.manual_seed(0)
    layer = nn.Linear(4, 4).double()
    x = torch.randn(2, 4, dtype=torch.float64)
    plain = layer(x) * F.linear(x, layer.weight)
    expected = torch.autograd.grad(plain.sum(), list(layer.parameters()))
    with repeated_products():
        gathered = layer(x) * F.linear(x, layer.weight)
    torch.testing.assert_close(gathered, plain)
    torch.testing.assert_close(torch.autograd.grad(gathered.sum(), list(layer.parameters())), expected)


def test_two_passes_before_one_way_back():
    torch.manual_seed(0)
    layer = nn.Linear(4, 4).double()
    one, other = torch.randn(2, 3, 4, dtype=torch.float64).unbind()
    expected = torch.autograd.grad((layer(one) * layer(other)).sum(), list(layer.parameters()))
    with repeated_products():
        first = layer(one)
    with repeated_products():
        second = layer(other)
    found = torch.autograd.grad((first * second).sum(), list(layer.parameters()))
    torch.testing.assert_close(found, expected)


def test_frozen_weights_and_autocast():
    torch.manual_seed(0)
    layer = nn.Linear(8, 8)
    x = torch.randn(5, 8, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        plain = layer(x)
        with repeated_products():
            gathered = layer(x)
    assert gathered.dtype is plain.dtype is torch.bfloat16
    torch.testing.assert_close(gathered, plain)
    (found,) = torch.autograd.grad(gathered.float().sum(), layer.weight)
    (expected,) = torch.autograd.grad(plain.float().sum(), layer.weight)
    assert found.dtype is torch.float32
    torch.testing.assert_close(found, expected, rtol=2e-2, atol=2e-2)
    layer.requires_grad_(False)
    with repeated_products():
        frozen = layer(x)
    torch.testing.assert_close(torch.autograd.grad(frozen.sum(), x)[0], layer.weight.sum(0).expand_as(x))


@pytest.mark.parametrize("rows", [(1,), (2,), (3, 10), (40,), (41,)])
@pytest.mark.parametrize("bias", [True, False])
def test_thin_products_are_linear_maps(rows, bias):
    torch.manual_seed(0)
    layer = nn.Linear(7, 5, bias=bias).double()
    x = torch.randn(*rows, 7, dtype=torch.float64)
    with torch.no_grad(), thin_products():
        found = layer(x)
    assert found.is_contiguous()
    torch.testing.assert_close(found, layer(x).detach(), rtol=1e-13, atol=1e-13)


def test_thin_products_leave_gradients_alone():
    layer, x = nn.Linear(7, 5), torch.randn(3, 7)
    with thin_products():
        assert layer(x).requires_grad
