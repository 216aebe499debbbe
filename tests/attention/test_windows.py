"""Local windows against loops over every pair."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from legenda import Regions
from legenda.attention import MultiHeadAttention
from legenda.attention.distance import WINDOWS, halo_windows, local_windows, swin_windows
from legenda.attention.geometry import Geometry, grid_positions

PLACES = st.lists(
    st.tuples(st.floats(0, 9, width=32) | st.integers(0, 9), st.floats(0, 9, width=32) | st.integers(0, 9)),
    min_size=1,
    max_size=6,
)


def table(places, sees):
    return [[all(sees(own[axis], other[axis]) for axis in (0, 1)) for other in places] for own in places]


@settings(deadline=None, max_examples=80)
@given(PLACES, st.integers(1, 7))
def test_swin_by_loops(places, size):
    windows = swin_windows(torch.tensor([places], dtype=torch.float64), size, 0)
    for shift, found in zip((0, size // 2), windows, strict=True):

        def same_window(own, other, shift=shift):
            return math.floor((own - shift) / size) == math.floor((other - shift) / size)

        assert found[0].tolist() == table(places, same_window)


@settings(deadline=None, max_examples=80)
@given(PLACES, st.integers(1, 7), st.integers(0, 3))
def test_halo_by_loops(places, size, halo):
    found, _ = halo_windows(torch.tensor([places], dtype=torch.float64), size, halo)

    def within_the_halo(own, other):
        begin = own // size * size
        return begin - halo <= other < begin + size + halo

    assert found[0].tolist() == table(places, within_the_halo)


@pytest.mark.parametrize("window", ["swin", "halo"])
def test_no_query_is_without_a_key_and_padding_sees_all(window, draw_regions):
    regions = draw_regions((8, 3), dim=4)
    places = grid_positions(regions.boxes, regions.mask_or_ones, 7)
    windows = local_windows(WINDOWS.get(window), places, regions.mask_or_ones, size=1, halo=0)
    for near in windows:
        assert near is not None
        assert near.diagonal(dim1=1, dim2=2).all()
        assert near[1, 3:].all()
        assert not near[0].all()
    assert local_windows(WINDOWS.get("none"), places, regions.mask_or_ones, size=1, halo=0) == (None, None)


def test_swin_moves_its_windows_in_every_other_layer_and_halo_does_not():
    regions = Regions.from_grid(torch.zeros(1, 49, 1), 7, 7)
    places = grid_positions(regions.boxes, regions.mask_or_ones, 7)
    first, second = local_windows(WINDOWS.get("swin"), places, regions.mask_or_ones, size=4, halo=2)
    assert not torch.equal(first, second)
    first, second = local_windows(WINDOWS.get("halo"), places, regions.mask_or_ones, size=4, halo=2)
    assert torch.equal(first, second)


@torch.no_grad()
@pytest.mark.parametrize("need_weights", [False, True])
def test_attention_within_a_window_is_attention_among_its_regions(need_weights):
    torch.manual_seed(0)
    attention = MultiHeadAttention(8, 2).double().eval()
    x = torch.randn(2, 6, 8, dtype=torch.float64)
    mask = torch.tensor([[True] * 6, [True, True, False, True, False, True]])
    group = torch.tensor([[0, 1, 0, 1, 2, 0], [0, 1, 0, 1, 1, 0]])
    window = group.unsqueeze(2) == group.unsqueeze(1)
    found = attention(x, x, x, mask, Geometry(window=window), need_weights=need_weights).values
    for image in range(2):
        for number in range(3):
            inside = (group[image] == number) & mask[image]
            if inside.any():
                alone = x[image : image + 1, inside]
                torch.testing.assert_close(found[image, inside], attention(alone, alone, alone).values[0])
