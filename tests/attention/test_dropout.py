"""Dropout sets the requested share of elements to zero, with a new mask at each call that the seed reproduces."""

import pytest
import torch

from legenda.attention.multi_head import dropout


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5])
@pytest.mark.parametrize("count", [1000, 400_000])
def test_share_of_zeros_and_scale(dtype, rate, count):
    torch.manual_seed(0)
    dropped = dropout(torch.ones(count, dtype=dtype), rate)
    zeros = (dropped == 0).double().mean().item()
    assert zeros == pytest.approx(rate, abs=5 * (rate * (1 - rate) / count) ** 0.5)
    kept = dropped[dropped != 0]
    assert (kept == kept[0]).all()
    assert kept[0].item() == pytest.approx(1 / (1 - rate), rel=1e-2 if dtype is torch.bfloat16 else 1e-4)


def test_masks_are_independent_between_and_within_calls():
    torch.manual_seed(0)
    first, second = (dropout(torch.ones(300_000), 0.5) != 0 for _ in range(2))
    assert (first == second).double().mean().item() == pytest.approx(0.5, abs=5e-3)
    for step in (1, 2, 3, 4, 8):
        assert (first[step:] == first[:-step]).double().mean().item() == pytest.approx(0.5, abs=5e-3)


def test_gradient_is_the_mask():
    x = torch.randn(5000, requires_grad=True)
    dropped = dropout(x, 0.25)
    dropped.sum().backward()
    assert torch.equal(x.grad != 0, dropped != 0)
    torch.testing.assert_close(x.grad * x.detach(), dropped.detach())


def test_gradients_keep_a_mask_of_eight_bits():
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x) or x, lambda x: x):
        dropout(torch.ones(100, 333, requires_grad=True), 0.3)
    assert [x.dtype for x in kept] == [torch.uint8]
    assert set(kept[0].unique().tolist()) == {0, 1}
