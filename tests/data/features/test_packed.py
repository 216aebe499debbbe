"""The packed feature store: what is written is read, in any order; what is faulty is named."""

import pickle
import re
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packed_files import BOXES, Image, make_images, write
from safetensors.numpy import load_file

from legenda.data.features import PackedFeatureStore, write_store
from legenda.data.features.base import validate_regions
from legenda.errors import DataError


def assert_holds(store: PackedFeatureStore, images: list[Image], order: list[int]) -> None:
    """Reading `order` gives those images, padded with zeros to the longest."""
    read = store.read(order)
    longest = max((len(images[index][1]) for index in order), default=0)
    assert read.features.shape == (len(order), longest, store.feature_dim)
    assert read.mask.shape == (len(order), longest)
    for row, index in enumerate(order):
        _, features, boxes = images[index]
        assert read.mask[row].tolist() == [True] * len(features) + [False] * (longest - len(features))
        np.testing.assert_array_equal(read.features[row, : len(features)], features)
        assert not read.features[row, len(features) :].any()
        if boxes is None:
            assert read.boxes is None
        else:
            assert read.boxes is not None
            np.testing.assert_array_equal(read.boxes[row, : len(features)], boxes)
            assert not read.boxes[row, len(features) :].any()


@settings(max_examples=40, deadline=None)
@given(st.data(), st.lists(st.integers(1, 6), min_size=1, max_size=6), st.integers(1, 5), st.booleans())
def test_every_store_gives_back_what_was_written_in_any_order(data, counts, width, boxes):
    images = make_images(counts, width, boxes=boxes, seed=data.draw(st.integers(0, 99)))
    order = data.draw(st.lists(st.integers(0, len(counts) - 1), max_size=8))
    with tempfile.TemporaryDirectory() as folder:
        store = write(Path(folder, "f.safetensors"), images)
        assert store.ids == tuple(image for image, _, _ in images)
        assert_holds(store, images, order)
        by_id = store.read([store.ids[index] for index in order])
        np.testing.assert_array_equal(by_id.features, store.read(np.array(order, np.int64)).features)
        store.check()


def test_every_finite_float16_is_read_to_the_bit(tmp_path):
    halves = np.arange(65536, dtype=np.uint16).view(np.float16)
    halves = halves[np.isfinite(halves)].reshape(-1, 64)
    images: list[Image] = [("all", halves[:700], None), ("rest", halves[700:], None)]
    read = write(tmp_path / "f.safetensors", images, "float16").read(["rest", "all"])
    assert read.features.dtype == np.float16
    np.testing.assert_array_equal(read.features[1, :700].view(np.uint16), halves[:700].view(np.uint16))
    np.testing.assert_array_equal(read.features[0, : len(halves) - 700].view(np.uint16), halves[700:].view(np.uint16))


def test_float16_rounds_to_the_nearest(tmp_path):
    images = make_images([3, 5], 8)
    read = write(tmp_path / "f.safetensors", images, "float16").read([1])
    np.testing.assert_allclose(read.features[0], images[1][1], rtol=2**-11, atol=2**-25)


def test_the_file_is_an_ordinary_safetensors_file(tmp_path):
    images = make_images([2, 3], 4)
    write(tmp_path / "f.safetensors", images)
    arrays = load_file(tmp_path / "f.safetensors")
    assert arrays["offsets"].tolist() == [0, 2, 5]
    np.testing.assert_array_equal(arrays["features"], np.concatenate([features for _, features, _ in images]))
    boxes = [boxes for _, _, boxes in images if boxes is not None]
    np.testing.assert_array_equal(arrays["boxes"], np.concatenate(boxes))


def test_properties_of_a_store(tmp_path):
    store = write(tmp_path / "f.safetensors", make_images([2, 3], 4, boxes=False))
    assert (len(store), store.feature_dim, store.has_boxes, store.extractor) == (2, 4, False, "ours-1")
    assert store.index("img1") == 1
    assert len(repr(store)) < 400


def test_a_pickled_store_opens_the_file_anew(tmp_path):
    images = make_images([400, 600], 64)
    store = write(tmp_path / "f.safetensors", images)
    travelling = pickle.dumps(store)
    assert len(travelling) < 1000
    assert_holds(pickle.loads(travelling), images, [1, 0])


def test_reading_leaves_the_store_untouched(tmp_path):
    images = make_images([2], 4)
    store = write(tmp_path / "f.safetensors", images)
    store.read([0]).features[:] = 9
    assert_holds(store, images, [0])


@pytest.mark.parametrize("wanted", [["img0", "nobody"], [2], [-1]])
def test_an_image_that_is_not_there_is_refused(tmp_path, wanted):
    store = write(tmp_path / "f.safetensors", make_images([2, 3], 4))
    with pytest.raises(DataError, match=r"f\.safetensors (holds no features of image 'nobody'|has 2 images)"):
        store.read(wanted)


def test_boxes_barely_outside_are_cut_to_the_image(tmp_path):
    boxes = np.array([[-0.0005, 0, 0.5, 1.0005]], np.float32)
    store = write(tmp_path / "f.safetensors", [("a", np.ones((1, 2)), boxes)])
    read = store.read(["a"]).boxes
    assert read is not None
    assert read.tolist() == [[[0, 0, 0.5, 1]]]


ONE = np.ones((2, 3), np.float32)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        ([("a", ONE, None), ("b", np.array([[1, np.nan, 2]]), None)], "'b'.*NaN or infinite"),
        ([("a", np.array([[1, -np.inf, 2]]), None)], "'a'.*NaN or infinite"),
        ([("a", np.array([[1, 1e300, 2]]), None)], "'a'.*NaN or infinite"),
        ([("a", ONE + 1j, None)], "'a'.*values of type complex64, where real numbers are needed"),
        ([("a", ONE.astype(str), None)], "'a'.*values of type <U32, where real numbers"),
        ([("a", ONE.astype(int).astype("M8[D]"), None)], "'a'.*values of type datetime64.D., where real numbers"),
        ([("a", ONE * -70000, None)], "'a'.*as large as 70000, where the limit is 65504"),
        ([("a", ONE, None), ("b", np.ones((1, 4)), None)], "'b'.*width 4, those before 3"),
        ([("a", np.ones((0, 3)), None)], "'a'.*at least one region"),
        ([("a", np.ones(3), None)], "'a'.*shape"),
        ([("a", ONE, BOXES[:1])], "'a'.*boxes of shape .1, 4. for 2 regions"),
        ([("a", ONE, BOXES * 224)], "'a'.*leaves 0..1"),
        ([("a", ONE, BOXES * np.nan)], "'a'.*leaves 0..1"),
        ([("a", ONE, BOXES[:, [2, 1, 0, 3]])], "'a'.*is empty"),
        ([("a", ONE, BOXES * [1, 0, 1, 0])], "'a'.*is empty"),
        ([("a", ONE, BOXES), ("b", ONE, None)], "'b'.*no boxes, unlike those before"),
        ([("a", ONE, None), ("b", ONE, BOXES)], "'b'.* has boxes, unlike those before"),
        ([("a", ONE, None), ("a", ONE, None)], "'a'.*id of an earlier image"),
        ([], "no image to store"),
    ],
)
def test_what_no_model_could_use_is_not_written(tmp_path, images, message):
    with pytest.raises(DataError, match=rf"f\.safetensors.*{message}"):
        write_store(tmp_path / "f.safetensors", images, extractor="ours-1")
    assert not list(tmp_path.iterdir())


def test_a_failed_writing_keeps_the_older_file(tmp_path):
    images = make_images([2], 4)
    write(tmp_path / "f.safetensors", images)
    with pytest.raises(DataError, match="no image"):
        write_store(tmp_path / "f.safetensors", [], extractor="ours-1")
    assert_holds(PackedFeatureStore(tmp_path / "f.safetensors"), images, [0])


def test_a_folder_is_no_place_for_a_store(tmp_path):
    with pytest.raises(DataError, match="is a folder"):
        write_store(tmp_path, make_images([1], 2), extractor="ours-1")


BOX = np.array([[0.1, 0.2, 0.5, 0.6]])


@pytest.mark.parametrize(
    ("features", "boxes", "message"),
    [
        (np.ones((1, 3)), BOX, None),
        (np.ones((1, 3)), None, None),
        (np.full((1, 3), 1e8, np.float32), BOX, None),  # float32 holds it, though no store of float16
        (np.full((1, 3), 1e30, np.float32), BOX, r"features as large as 1e\+30, where the limit is 1e\+09"),
        (np.ones((1, 3)) + 1j, BOX, "values of type complex128, where real numbers are needed"),
        (np.ones((1, 3)), BOX.astype(str), "values of type <U32, where real numbers are needed"),
        (np.ones((1, 3)), BOX * [[1, 0, 2.0008, 1]], None),  # cut to the image
        (np.ones(3), None, r"features of shape \(3,\)"),
        (np.ones((0, 3)), np.ones((0, 4)), r"features of shape \(0, 3\), .* at least one region"),
        (np.ones((2, 0)), None, r"features of shape \(2, 0\)"),
        (np.ones((2, 3)), BOX, r"boxes of shape \(1, 4\) for 2 regions"),
        (np.full((1, 3), np.nan), BOX, "features that are NaN or infinite"),
        (np.full((1, 3), -np.inf), None, "features that are NaN or infinite"),
        (np.ones((1, 3)), BOX * np.nan, "which leaves 0..1"),
        (np.ones((1, 3)), BOX * 640, "which leaves 0..1"),
        (np.ones((1, 3)), -BOX, "which leaves 0..1"),
        (np.ones((1, 3)), BOX[:, [2, 1, 0, 3]], "which is empty"),
        (np.ones((1, 3)), BOX[:, [0, 1, 2, 1]], "which is empty"),
    ],
)
def test_regions_are_validated(features, boxes, message):
    fault = validate_regions(features, boxes)
    assert fault is None if message is None else re.search(message, str(fault))
