"""Places, distances and distance-sensitive attention, by hand and by law."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from legenda import Regions
from legenda.attention import Geometry
from legenda.attention.distance import DISTANCES, DistanceRescale, pair_distances
from legenda.attention.geometry import grid_positions

GRID = [[column, row] for row in range(7) for column in range(7)]


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 30), st.integers(1, 30), st.sampled_from([torch.float32, torch.float64, torch.float16]))
def test_cells_of_any_grid_lie_at_whole_numbers(rows, columns, dtype):
    regions = Regions.from_grid(torch.zeros(2, rows * columns, 1), rows, columns)
    assert regions.boxes is not None
    found = grid_positions(regions.boxes.to(dtype), regions.mask_or_ones, 7)
    expected = torch.tensor([[column, row] for row in range(rows) for column in range(columns)], dtype=found.dtype)
    if rows * columns > 1:
        assert torch.equal(found, expected.expand(2, -1, -1))


def test_a_grid_in_any_order_with_padding_that_holds_anything():
    order = torch.randperm(49, generator=torch.Generator().manual_seed(0))
    boxes = Regions.from_grid(torch.zeros(1, 49, 1), 7, 7).boxes[:, order]
    mask = torch.arange(49).unsqueeze(0) < 20
    places = grid_positions(boxes.masked_fill(~mask.unsqueeze(-1), float("nan")), mask, 5)
    assert torch.equal(places[0, :20], torch.tensor(GRID, dtype=torch.float)[order][:20])
    assert (places[0, 20:] == 0).all()


def test_other_regions_lie_at_their_centres():
    boxes = torch.tensor([[[0.0, 0.0, 0.5, 1.0], [0.5, 0.25, 0.9, 0.75], [0.2, 0.2, 0.4, 0.4]]])
    found = grid_positions(boxes, torch.ones(1, 3, dtype=torch.bool), 7)
    torch.testing.assert_close(found, torch.tensor([[[1.75, 3.5], [4.9, 3.5], [2.1, 2.1]]]))
    # Of equal sizes, but not where the cells of a grid would be.
    boxes = torch.tensor([[[0.0, 0.0, 0.5, 0.5], [0.25, 0.5, 0.75, 1.0]]])
    found = grid_positions(boxes, torch.ones(1, 2, dtype=torch.bool), 10)
    torch.testing.assert_close(found, torch.tensor([[[2.5, 2.5], [5.0, 7.5]]]))


def test_distances_by_hand():
    places = torch.tensor([[[0.0, 0.0], [3.0, 4.0], [1.0, 6.0]]])
    manhattan = [[0, 7, 7], [7, 0, 4], [7, 4, 0]]
    euclidean = [[0, 5, math.sqrt(37)], [5, 0, math.sqrt(8)], [math.sqrt(37), math.sqrt(8), 0]]
    chebyshev = [[0, 4, 6], [4, 0, 2], [6, 2, 0]]
    for distance, expected in (("manhattan", manhattan), ("euclidean", euclidean), ("chebyshev", chebyshev)):
        torch.testing.assert_close(pair_distances(places, DISTANCES.get(distance)), torch.tensor([expected]).float())
    assert pair_distances(places, DISTANCES.get("none")) is None


def build(scaling, weights=(0.5, -0.25), shifts=(0.3, -1.0)):
    rescale = DistanceRescale(2, scaling).double()
    rescale.weight.data = torch.tensor(weights, dtype=torch.float64)
    if rescale.shift is not None:
        rescale.shift.data = torch.tensor(shifts, dtype=torch.float64)
    return rescale


def by_hand(scaling, w, v, r):
    match scaling:
        case "sigmoid":
            return (1 + math.exp(v)) / (1 + math.exp(v - w * r))
        case "linear":
            return min(max(w * r, 0), 2)
        case "quadratic":
            return min(max(w * r * r, 0), 2)
        case "scalar":
            return w * r


@torch.no_grad()
@pytest.mark.parametrize("scaling", ["sigmoid", "linear", "quadratic", "scalar"])
def test_factors_and_scores_by_hand(scaling):
    rescale = build(scaling)
    distance = torch.tensor([[[0.0, 1.0, 12.0], [1.0, 0.0, 2.5], [12.0, 2.5, 0.0]]], dtype=torch.float64)
    scores = torch.tensor([[-1.0, 2.0, 3.0]], dtype=torch.float64).expand(1, 2, 3, 3)
    found = rescale(scores, Geometry(distance=distance))
    for head, (w, v) in enumerate([(0.5, 0.3), (-0.25, -1.0)]):
        for i in range(3):
            for j, score in enumerate([0.0, 2.0, 3.0]):  # the negative score becomes 0
                expected = score * by_hand(scaling, w, v, distance[0, i, j].item())
                assert found[0, head, i, j].item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("scaling", ["sigmoid", "linear", "quadratic", "scalar"])
def test_gradients_are_finite_where_the_printed_form_overflows(scaling):
    rescale = build(scaling, (-8.0, 8.0), (0.0, 0.0)).float()
    distance = torch.tensor([[[0.0, 12.0], [640.0, 0.0]]])
    rescale(torch.ones(1, 2, 2, 2), Geometry(distance=distance)).sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in rescale.parameters())
    printed = torch.tensor(-8.0, requires_grad=True)
    (2 / (1 + (-printed * 12).exp())).backward()
    assert printed.grad is not None
    assert printed.grad.isnan()
