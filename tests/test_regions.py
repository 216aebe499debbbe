"""Regions and Memory: shapes, padding, indexing."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import legenda
from legenda import Regions
from legenda.errors import DataError
from legenda.regions import hide_regions, mask_zero_features


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"features": torch.zeros(3, 4)}, "features need the shape"),
        ({"features": torch.zeros(2, 3, 4), "boxes": torch.zeros(2, 3, 5)}, "boxes need the shape"),
        ({"features": torch.zeros(2, 3, 4), "mask": torch.ones(2, 4, dtype=torch.bool)}, "mask needs the shape"),
        (
            {"features": torch.zeros(2, 3, 4, dtype=torch.uint8)},
            "features need a floating-point dtype, not torch.uint8",
        ),
        ({"features": torch.zeros(2, 0, 4)}, "at least one region; these features have none"),
        ({"features": torch.zeros(2, 3, 4), "mask": torch.arange(2)[:, None].expand(2, 3) < 1}, "none to image 1"),
        (
            {"features": torch.zeros(1, 1, 4), "boxes": torch.tensor([[[0.0, 0.0, 320.0, 240.0]]])},
            r"boxes need x1 y1 x2 y2 in 0..1 of the image, not \[0.0, 0.0, 320.0, 240.0\]; divide boxes in pixels",
        ),
        ({"features": torch.zeros(1, 1, 4), "boxes": torch.tensor([[[-1.0, -1.0, 0.0, 1.0]]])}, r"not \[-1.0"),
        ({"features": torch.zeros(1, 1, 4), "boxes": torch.full((1, 1, 4), float("nan"))}, r"not \[nan"),
    ],
)
def test_what_are_no_regions_is_refused(arguments, message):
    with pytest.raises(DataError, match=message):
        Regions(**arguments)


def test_grid_boxes_are_in_row_major_order():
    regions = Regions.from_grid(torch.zeros(2, 6, 3), height=2, width=3)
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


@settings(deadline=None, max_examples=25)
@given(st.lists(st.tuples(st.integers(1, 2), st.integers(1, 4)), min_size=1, max_size=4), st.booleans())
def test_stacked_batches_keep_their_regions(sizes, boxed):
    batches = [
        Regions(torch.randn(images, count, 3), torch.rand(images, count, 4) if boxed else None)
        for images, count in sizes
    ]
    stacked = Regions.stack(batches)
    first = 0
    for regions in batches:
        images, count, _ = regions.features.shape
        part = stacked[first : first + images]
        assert torch.equal(part.features[:, :count], regions.features)
        assert torch.equal(part.mask_or_ones.sum(dim=1), torch.full((images,), count))
        assert part.mask_or_ones[:, :count].all()
        if boxed:
            assert torch.equal(part.boxes[:, :count], regions.boxes)
        first += images
    assert first == len(stacked)
    assert (stacked.boxes is not None) == boxed


def test_images_with_and_without_a_part_are_not_one_batch():
    features = torch.zeros(1, 2, 4)
    for part in ({"boxes": torch.zeros(1, 2, 4)}, {"global_feature": torch.zeros(1, 4)}):
        with pytest.raises(DataError, match=next(iter(part))):
            Regions.stack([Regions(features), Regions(features, **part)])


@pytest.mark.parametrize("index", [slice(1, 3), torch.tensor([2, 0, 0])])
def test_indexing_regions_selects_images(index):
    features, boxes = torch.randn(3, 2, 5), torch.rand(3, 2, 4)
    mask = torch.tensor([[True, False], [True, True], [False, True]])
    part = Regions(features, boxes, mask)[index]
    assert torch.equal(part.features, features[index])
    assert torch.equal(part.boxes, boxes[index])
    assert torch.equal(part.mask_or_ones, mask[index])


def test_zero_features_are_masked_unless_an_image_has_no_others():
    features = torch.tensor([[[1.0], [0.0]], [[0.0], [0.0]]])
    assert mask_zero_features(Regions(features)).mask_or_ones.tolist() == [[True, False], [True, True]]


def test_regions_are_built_while_exporting():
    class Double(torch.nn.Module):
        def forward(self, features: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            return 2 * Regions(features, mask=mask).features

    example = torch.ones(1, 2, 3), torch.tensor([[True, False]])
    exported = torch.export.export(Double(), example).module()
    assert torch.equal(exported(*example), 2 * example[0])


def test_hidden_regions_are_a_share_of_the_real_ones_and_never_all():
    torch.manual_seed(0)
    mask = torch.ones(200, 20, dtype=torch.bool)
    mask[:, 15:] = False
    mask[0, 1:] = False
    hidden = hide_regions(Regions(torch.zeros(200, 20, 3), mask=mask), 0.25)
    kept = hidden.mask_or_ones
    assert not (kept & ~mask).any()
    assert kept[0].sum() == 1
    assert kept[1:, :15].float().mean() == pytest.approx(0.75, abs=0.02)


@pytest.fixture
def regions() -> Regions:
    """Two images of three regions with boxes, the last one padding, and a global feature."""
    generator = torch.Generator().manual_seed(0)
    features, boxes, vectors = (torch.rand(2, *shape, generator=generator) for shape in ((3, 4), (3, 4), (5,)))
    return Regions(features, boxes.sort(-1).values, torch.tensor([[True, True, False]] * 2), vectors)


def test_regions_are_a_pytree_of_their_tensors(regions: Regions):
    leaves, structure = torch.utils._pytree.tree_flatten(regions)
    assert [tuple(leaf.shape) for leaf in leaves] == [(2, 3, 4), (2, 3, 4), (2, 3), (2, 5)]
    again = torch.utils._pytree.tree_unflatten(leaves, structure)
    assert all(torch.equal(a, b) for a, b in zip(leaves, torch.utils._pytree.tree_leaves(again), strict=True))
    plain = torch.utils._pytree.tree_map(lambda x: x * 2, Regions(torch.ones(1, 2, 3)))
    assert plain.boxes is None
    assert plain.features.sum() == 12


@pytest.mark.parametrize("workers", [0, 1])
def test_data_loaders_join_regions_of_other_numbers(regions: Regions, workers: int):
    samples = [(regions[:1], 1), (Regions(torch.ones(1, 5, 4), torch.ones(1, 5, 4), None, torch.ones(1, 5)), 2)]
    batch, numbers = next(iter(torch.utils.data.DataLoader(samples, batch_size=2, num_workers=workers)))
    assert batch.features.shape == (2, 5, 4)
    assert batch.mask_or_ones.sum(1).tolist() == [2, 5]
    assert numbers.tolist() == [1, 2]
    with pytest.raises(DataError, match="boxes"):
        torch.utils.data.default_collate([regions[:1], Regions(torch.ones(1, 5, 4))])


def test_regions_move_like_tensors(regions: Regions):
    for moved in (regions.to(torch.float64), regions.to("cpu", torch.float64), regions.to(torch.ones(1).double())):
        assert moved.features.dtype == moved.boxes.dtype == moved.global_feature.dtype == torch.float64
        assert moved.mask_or_ones.dtype == torch.bool
    assert regions.to("meta", non_blocking=True).features.device.type == "meta"
    with pytest.raises(TypeError, match="int64"):
        regions.to(torch.int64)


@pytest.mark.parametrize("name", ["transformer", "ngsan", "aoanet"])
def test_models_take_regions_in_torch_export_and_features_in_place_of_regions(name: str):
    torch.manual_seed(0)
    model = legenda.create_model(name, vocab_size=9, feature_dim=4, dim=8, num_heads=2, num_layers=1).eval()
    features, tokens = torch.rand(2, 3, 4), torch.zeros(2, 2, 3, dtype=torch.long)
    regions = Regions(features, None if not model.needs_boxes else torch.rand(2, 3, 4).sort(-1).values)
    with torch.no_grad():
        logits = model(regions, tokens)
        exported = torch.export.export(model, (regions, tokens)).module()
        torch.testing.assert_close(exported(regions, tokens), logits)
    if model.needs_boxes:
        with pytest.raises(DataError, match="boxes"):
            model.encode(features)
        return
    torch.testing.assert_close(model(features, tokens), logits)
    expected = legenda.decoding.beam_search(model, regions, max_length=4).tokens
    assert torch.equal(legenda.decoding.beam_search(model, features, max_length=4).tokens, expected)


def test_models_refuse_other_inputs_and_tokens_of_another_shape(regions: Regions):
    model = legenda.create_model("transformer", vocab_size=9, feature_dim=4, dim=8, num_heads=2, num_layers=1)
    with pytest.raises(DataError, match="list"):
        model.encode([regions])
    with pytest.raises(DataError, match=r"\(B, K, T\).*\(2, 3\)"):
        model(regions, torch.zeros(2, 3, dtype=torch.long))
