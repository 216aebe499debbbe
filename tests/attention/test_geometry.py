"""Geometry: the features of Eq. 8 by hand, the three biases by loops, the absolute encoding by formula."""

import itertools
import math

import numpy as np
import pytest
import torch
from torch import nn

from legenda.attention import AttentionConfig, Geometry, GeometryBias, GeometryEmbedding, sinusoids
from legenda.attention.geometry import absolute_geometry, relative_geometry, sine_positions
from legenda.regions import Regions

HEADS, DIM, GEOMETRY = 2, 6, 4
KINDS = ("content", "query", "key")
PARTS = [kinds for size in (1, 2, 3) for kinds in itertools.combinations(KINDS, size)]


def draw_boxes(seed=0, images=2, regions=4):
    generator = torch.Generator().manual_seed(seed)
    corners = torch.rand(images, regions, 2, generator=generator, dtype=torch.float64) * 0.6
    sizes = torch.rand(images, regions, 2, generator=generator, dtype=torch.float64) * 0.3 + 0.05
    return torch.cat([corners, corners + sizes], dim=-1)


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def build_bias(kinds, *, scaled=True):
    torch.manual_seed(1)
    options = AttentionConfig(geometry="+".join(kinds), geometry_dim=GEOMETRY, geometry_scaled=scaled)
    bias = GeometryBias(options, DIM, HEADS, DIM // HEADS).double()
    for parameter in bias.parameters():
        nn.init.normal_(parameter)
    return bias


def test_features_by_hand():
    # Centers (2, 1) and (5, 5); sizes 4 x 2 and 2 x 8.
    boxes = torch.tensor([[[0, 0, 4, 2], [4, 1, 6, 9]]], dtype=torch.float64)
    near = math.log(1e-3)
    expected = [
        [[near, near, 0, 0], [math.log(3 / 4), math.log(4 / 2), math.log(4 / 2), math.log(2 / 8)]],
        [[math.log(3 / 2), math.log(4 / 8), math.log(2 / 4), math.log(8 / 2)], [near, near, 0, 0]],
    ]
    np.testing.assert_allclose(relative_geometry(boxes)[0].numpy(), expected, atol=1e-12)


@pytest.mark.parametrize("garbage", [0.0, float("nan"), float("inf"), -7.0])
def test_padded_boxes_are_finite_and_touch_nothing(garbage):
    mask = torch.tensor([[True, True, True, False], [True, False, True, False]])
    boxes = draw_boxes().requires_grad_()
    spoilt = torch.where(mask.unsqueeze(-1), boxes, garbage)
    features = relative_geometry(spoilt, mask)
    assert features.isfinite().all()
    real = mask.unsqueeze(1) & mask.unsqueeze(2)
    assert torch.equal(features[real], relative_geometry(boxes)[real])
    embedding = GeometryEmbedding(GEOMETRY).double()
    embedding(spoilt, mask).sum().backward()
    assert boxes.grad.isfinite().all()
    assert all(parameter.grad.isfinite().all() for parameter in embedding.parameters())


def project(layer, x):
    return (x @ layer.weight.T + layer.bias).view(*x.shape[:2], HEADS, GEOMETRY)


def bias_by_loops(bias, query, key, geometry):
    """phi(Q', K', G), one number at a time (Eq. 11, 12, 13)."""
    images, regions, _ = query.shape
    own_query = None if bias.query is None else project(bias.query, query)
    own_key = None if bias.key is None else project(bias.key, key)
    total = torch.zeros(images, HEADS, regions, regions, dtype=torch.float64)
    for b, h, i, j in itertools.product(range(images), range(HEADS), range(regions), range(regions)):
        if bias.weight is not None:
            total[b, h, i, j] += max(float(bias.weight[h] @ geometry.embedded[b, i, j]), 0.0)
        if own_query is not None:
            total[b, h, i, j] += float(own_query[b, i, h] @ geometry.embedded[b, i, j])
        if own_key is not None:
            total[b, h, i, j] += float(own_key[b, j, h] @ geometry.embedded[b, i, j])
    return total


@torch.no_grad()
@pytest.mark.parametrize("kinds", PARTS, ids="+".join)
def test_biases_by_loops(kinds):
    bias = build_bias(kinds)
    query, key, geometry = draw(2, 3, DIM), draw(2, 3, DIM, seed=1), Geometry(draw(2, 3, 3, GEOMETRY, seed=2))
    torch.testing.assert_close(bias(query, key, geometry), bias_by_loops(bias, query, key, geometry))


@pytest.mark.parametrize("dim", [2, 8, 16])
def test_sinusoids_are_those_of_the_transformer(dim):
    positions = torch.tensor([0.0, 0.5, 1.0, 19.0], dtype=torch.float64)
    found = sinusoids(positions, dim)
    for row, position in zip(found.tolist(), positions.tolist(), strict=True):
        for channel, value in enumerate(row):
            angle = position / 10000 ** (2 * (channel // 2) / dim)
            assert value == pytest.approx(math.cos(angle) if channel % 2 else math.sin(angle), abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_boxes_and_positions_in_half_precision_are_rounded_once(dtype):
    """Angles reach hundreds, where bfloat16 has steps of 2."""
    boxes, positions = draw_boxes().to(dtype), torch.arange(0, 200, 8, dtype=dtype)
    assert torch.equal(relative_geometry(boxes), relative_geometry(boxes.float()))
    for embed in (absolute_geometry, sine_positions):
        assert torch.equal(embed(boxes, 16), embed(boxes.float(), 16))
    assert torch.equal(sinusoids(positions, 16), sinusoids(positions.float(), 16))


def detr_sine_positions(height: int, width: int, dim: int) -> np.ndarray:
    """Return DETR's encoding of an unmasked H x W grid, written from its formula; (H, W, dim)."""
    encoded = np.empty((height, width, dim))
    for row, column, channel in itertools.product(range(height), range(width), range(dim)):
        half, k = divmod(channel, dim // 2)
        position = ((row + 1) / height if half == 0 else (column + 1) / width) * 2 * math.pi
        angle = position / 10000 ** (2 * (k // 2) / (dim // 2))
        encoded[row, column, channel] = math.cos(angle) if k % 2 else math.sin(angle)
    return encoded


def test_sine_positions_are_those_of_detr_on_a_grid():
    boxes = Regions.from_grid(torch.zeros(1, 35, 8), 5, 7).boxes
    assert boxes is not None
    found = sine_positions(boxes.double(), 16)[0].reshape(5, 7, 16)
    np.testing.assert_allclose(found.numpy(), detr_sine_positions(5, 7, 16), atol=1e-6)
    neighbors = (found[:, 1:] - found[:, :-1]).norm(dim=-1).min()
    assert neighbors > 0.5  # distinguishable, unlike coordinates in 0..1 without the factor


def test_absolute_geometry_by_formula():
    boxes, dim = draw_boxes(), 16
    found = absolute_geometry(boxes, dim)
    assert found.shape == (2, 4, dim)
    for image, region in itertools.product(range(2), range(4)):
        x1, y1, x2, y2 = boxes[image, region].tolist()
        for number, value in enumerate([(x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1]):
            angles = [value / 10000 ** (2 * k / (dim // 4)) for k in range(dim // 8)]
            expected = [function(angle) for angle in angles for function in (math.sin, math.cos)]
            part = found[image, region, number * dim // 4 : (number + 1) * dim // 4]
            assert part.tolist() == pytest.approx(expected, abs=1e-12)
