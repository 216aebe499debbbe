"""Normalised queries against torch's own layers, against single images, and by law."""

import pytest
import torch
from torch import nn

from legenda.attention import MaskedBatchNorm, MultiHeadAttention
from legenda.attention.normalization import NORMS, MaskedInstanceNorm

MASK = torch.tensor([[True, True, True, True], [True, False, True, False], [False, False, False, True]])


def values(seed=0, images=3, regions=4, channels=5):
    """Far from mean 0 and variance 1."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(images, regions, channels, generator=generator, dtype=torch.float64) * 3 + 7


@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("mask", [None, torch.ones(3, 4, dtype=torch.bool)])
def test_instance_norm_is_torchs_where_all_regions_are_real(affine, mask):
    ours, reference = MaskedInstanceNorm(5, affine).double(), nn.InstanceNorm1d(5, affine=affine).double()
    if affine:
        for own, other in ((ours.weight, reference.weight), (ours.bias, reference.bias)):
            nn.init.normal_(own)
            other.data.copy_(own.data)
    x = values()
    torch.testing.assert_close(ours(x, mask), reference(x.transpose(1, 2)).transpose(1, 2), atol=1e-12, rtol=0)
    assert torch.equal(ours(x, mask), ours.eval()(x, mask))  # no running statistics


@pytest.mark.parametrize("affine", [False, True])
def test_statistics_are_those_of_each_image_without_its_padding(affine):
    norm = MaskedInstanceNorm(5, affine).double()
    if affine:
        nn.init.normal_(norm.weight)
        nn.init.normal_(norm.bias)
    x = values()
    y = norm(x, MASK)
    for image, real in enumerate(MASK):
        alone = norm(x[image : image + 1, real])
        torch.testing.assert_close(y[image : image + 1, real], alone, atol=1e-12, rtol=0)


@pytest.mark.parametrize("garbage", [1e30, float("inf"), float("nan")])
def test_padding_changes_nothing_and_comes_out_finite(garbage):
    x = values().requires_grad_()
    spoilt = torch.where(MASK.unsqueeze(-1), x, garbage)
    norm = MaskedInstanceNorm(5)
    y = norm(spoilt, MASK)
    assert torch.equal(y[MASK], norm(x, MASK)[MASK])
    assert y.isfinite().all()
    y[MASK].square().sum().backward()
    assert x.grad.isfinite().all()
    assert (x.grad[~MASK] == 0).all()


def test_one_region_alone_becomes_zero_and_looks_at_itself():
    x = values(regions=1)
    assert torch.equal(MaskedInstanceNorm(5)(x, torch.ones(3, 1, dtype=torch.bool)), torch.zeros_like(x))
    attention = MultiHeadAttention(6, 2, query_norm=MaskedInstanceNorm(6)).double()
    x = values(regions=1, channels=6)
    assert (attention(x, x, x, need_weights=True).weights == 1).all()


def test_batch_norm_is_torchs_over_the_real_regions():
    ours, reference = MaskedBatchNorm(5).double(), nn.BatchNorm1d(5).double()
    nn.init.normal_(ours.weight)
    nn.init.normal_(ours.bias)
    reference.load_state_dict(ours.state_dict(), strict=False)
    for seed in range(3):
        x = values(seed).masked_fill(~MASK.unsqueeze(-1), 1e6)
        torch.testing.assert_close(ours(x, MASK)[MASK], reference(x[MASK]))
        torch.testing.assert_close(ours.running_mean, reference.running_mean)
        torch.testing.assert_close(ours.running_var, reference.running_var)
    torch.testing.assert_close(ours(values()), reference(values().flatten(0, 1)).view(3, 4, 5))  # without a mask
    ours.eval()
    reference.eval()
    kept = ours.running_mean.clone()
    torch.testing.assert_close(ours(values(9), MASK), reference(values(9).flatten(0, 1)).view(3, 4, 5))
    assert torch.equal(ours.running_mean, kept)


@pytest.mark.parametrize("name", ["in", "in_affine", "ln", "bn"])
@pytest.mark.parametrize("mask", [None, MASK])
def test_statistics_of_half_precision_are_taken_in_full(name, mask):
    """About 300, where bfloat16 has steps of 2: a variance summed in it would be far off."""
    x = (values() * 0.5 + 300).to(torch.bfloat16)
    norm = NORMS.get(name)(5)
    assert norm is not None
    y = norm.to(torch.bfloat16)(x, mask) if name == "ln" else norm(x, mask)
    assert y.dtype == torch.bfloat16
    exact = NORMS.get(name)(5)
    assert exact is not None
    expected = exact(x.float(), mask).to(torch.bfloat16)
    real = torch.ones(3, 4, dtype=torch.bool) if mask is None else mask
    torch.testing.assert_close(y[real], expected[real], atol=1e-5, rtol=2**-7)
