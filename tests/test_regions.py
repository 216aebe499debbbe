"""Regions and Memory: shapes, padding, parts of a batch."""

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from legenda import Memory, Regions, UserError


def test_a_missing_mask_means_that_all_regions_are_real():
    regions = Regions(torch.zeros(2, 3, 4))
    assert regions.boxes is None
    assert torch.equal(regions.mask_or_ones, torch.ones(2, 3, dtype=torch.bool))
    assert len(regions) == 2


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"features": torch.zeros(3, 4)}, "features need the shape"),
        ({"features": torch.zeros(2, 3, 4), "boxes": torch.zeros(2, 3, 5)}, "boxes need the shape"),
        ({"features": torch.zeros(2, 3, 4), "boxes": torch.zeros(2, 1, 4)}, "boxes need the shape"),
        ({"features": torch.zeros(2, 3, 4), "mask": torch.ones(2, 4, dtype=torch.bool)}, "mask needs the shape"),
        ({"features": torch.zeros(2, 3, 4), "mask": torch.ones(2, 3)}, "type bool"),
    ],
)
def test_shapes_that_disagree_are_refused(arguments, told):
    with pytest.raises(UserError, match=told):
        Regions(**arguments)


@pytest.mark.parametrize(
    ("features", "mask", "told"),
    [
        (torch.zeros(2, 0, 4), None, "at least one region; these features have none"),
        (
            torch.zeros(2, 3, 4),
            torch.tensor([[True, False, False], [False, False, False]]),
            "at least one region, but the mask leaves none to picture 1",
        ),
    ],
)
def test_a_picture_without_any_region_is_refused(features, mask, told):
    with pytest.raises(UserError, match=told):
        Regions(features, mask=mask)


def test_regions_do_not_change():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Regions(torch.zeros(1, 1, 1)).features = torch.ones(1, 1, 1)  # type: ignore[misc]


def test_a_grid_is_read_line_by_line():
    regions = Regions.from_grid(torch.zeros(2, 6, 3), rows=2, columns=3)
    third, two_thirds = pytest.approx(1 / 3), pytest.approx(2 / 3)
    assert regions.boxes is not None
    for boxes in regions.boxes.tolist():
        assert boxes == [
            [0, 0, third, 0.5],
            [third, 0, two_thirds, 0.5],
            [two_thirds, 0, 1, 0.5],
            [0, 0.5, third, 1],
            [third, 0.5, two_thirds, 1],
            [two_thirds, 0.5, 1, 1],
        ]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_boxes_of_a_grid_are_float32_whatever_the_features(dtype):
    boxes = Regions.from_grid(torch.zeros(1, 14 * 14, 2, dtype=dtype), rows=14, columns=14).boxes
    assert boxes is not None
    assert boxes.dtype == torch.float32
    assert boxes[0, -1].tolist() == pytest.approx([13 / 14, 13 / 14, 1, 1], abs=1e-7)


def test_a_grid_of_another_size_is_refused():
    with pytest.raises(UserError, match="2 x 3 needs 6 cells, not 5"):
        Regions.from_grid(torch.zeros(2, 5, 3), rows=2, columns=3)


@settings(deadline=None, max_examples=25)
@given(st.lists(st.tuples(st.integers(1, 2), st.integers(1, 4)), min_size=1, max_size=4), st.booleans())
def test_what_is_stacked_comes_back(sizes, boxed):
    pictures = [
        Regions(torch.randn(images, count, 3), torch.rand(images, count, 4) if boxed else None)
        for images, count in sizes
    ]
    batch = Regions.stack(pictures)
    first = 0
    for picture in pictures:
        images, count, _ = picture.features.shape
        part = batch[first : first + images]
        assert torch.equal(part.features[:, :count], picture.features)
        assert torch.equal(part.mask_or_ones.sum(dim=1), torch.full((images,), count))
        assert part.mask_or_ones[:, :count].all()
        if boxed:
            assert torch.equal(part.boxes[:, :count], picture.boxes)
        first += images
    assert first == len(batch)
    assert (batch.boxes is not None) == boxed


def test_padding_that_was_there_stays_padding():
    short = Regions(torch.zeros(1, 2, 1), mask=torch.tensor([[True, False]]))
    assert Regions.stack([short, Regions(torch.zeros(1, 3, 1))]).mask_or_ones.tolist() == [
        [True, False, False],
        [True] * 3,
    ]


def test_boxes_for_some_pictures_only_are_refused():
    with pytest.raises(UserError, match="boxes for all of them or for none"):
        Regions.stack([Regions(torch.zeros(1, 2, 1), torch.zeros(1, 2, 4)), Regions(torch.zeros(1, 2, 1))])


@pytest.mark.parametrize("index", [slice(1, 3), torch.tensor([2, 0, 0])])
def test_parts_of_a_batch(index):
    features, boxes = torch.randn(3, 2, 5), torch.rand(3, 2, 4)
    mask = torch.tensor([[True, False], [True, True], [False, True]])
    part = Regions(features, boxes, mask)[index]
    assert torch.equal(part.features, features[index])
    assert torch.equal(part.boxes, boxes[index])
    assert torch.equal(part.mask_or_ones, mask[index])


@pytest.mark.parametrize("index", [slice(1, 3), torch.tensor([2, 0, 0])])
@pytest.mark.parametrize("pooled", [torch.randn(3, 5), None])
def test_parts_of_a_memory(index, pooled):
    states, mask = torch.randn(3, 4, 5), torch.rand(3, 4) < 0.5
    layers = tuple((torch.randn(3, 2, 4, 1), torch.randn(3, 2, 4, 1)) for _ in range(2))
    part = Memory(states, mask, pooled, layers)[index]
    assert torch.equal(part.states, states[index])
    assert torch.equal(part.mask, mask[index])
    assert (part.pooled is None) if pooled is None else torch.equal(part.pooled, pooled[index])
    for got, layer in zip(part.keys_values, layers, strict=True):
        assert all(torch.equal(tensor, whole[index]) for tensor, whole in zip(got, layer, strict=True))
    assert len(part) == len(states[index])
