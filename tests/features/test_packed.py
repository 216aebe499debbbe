"""The packed feature store: what is written is read, in any order; what is faulty is named."""

import json
import pickle
import tempfile
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from legenda.errors import DataError
from legenda.features import PackedFeatureStore, write_store
from legenda.images.extractor import check_regions

Image = tuple[str, np.ndarray, np.ndarray | None]


def make_images(counts: list[int], width: int, *, boxes: bool = True, seed: int = 0) -> list[Image]:
    rng = np.random.default_rng(seed)
    images: list[Image] = []
    for number, count in enumerate(counts):
        corner = rng.uniform(0, 0.5, (count, 2))
        xyxy = np.concatenate([corner, corner + rng.uniform(0.1, 0.5, (count, 2))], 1).astype(np.float32)
        features = rng.standard_normal((count, width)).astype(np.float32)
        images.append((f"img{number}", features, xyxy if boxes else None))
    return images


def write(path: Path, images: list[Image], dtype: str = "float32") -> PackedFeatureStore:
    write_store(path, images, extractor="ours-1", dtype=dtype)
    return PackedFeatureStore(path)


BOXES = np.array([[0, 0, 1, 1], [0.2, 0.2, 0.4, 0.6]], np.float32)


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
        list(store.images())


def test_the_file_is_an_ordinary_safetensors_file(tmp_path):
    images = make_images([2, 3], 4)
    write(tmp_path / "f.safetensors", images)
    arrays = load_file(tmp_path / "f.safetensors")
    assert arrays["offsets"].tolist() == [0, 2, 5]
    np.testing.assert_array_equal(arrays["features"], np.concatenate([features for _, features, _ in images]))
    boxes = [boxes for _, _, boxes in images if boxes is not None]
    np.testing.assert_array_equal(arrays["boxes"], np.concatenate(boxes))


def test_a_pickled_store_opens_the_file_anew(tmp_path):
    images = make_images([400, 600], 64)
    store = write(tmp_path / "f.safetensors", images)
    travelling = pickle.dumps(store)
    assert len(travelling) < 1000
    assert_holds(pickle.loads(travelling), images, [1, 0])


ONE = np.ones((2, 3), np.float32)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        ([("a", ONE, None), ("b", np.array([[1, np.nan, 2]]), None)], "'b'.*NaN or infinite"),
        ([("a", ONE * -70000, None)], "'a'.*as large as 70000, where the limit is 65504"),
        ([("a", ONE, None), ("b", np.ones((1, 4)), None)], "'b'.*width 4, those before 3"),
        ([("a", ONE, BOXES), ("b", ONE, None)], "'b'.*no boxes, unlike those before"),
        ([("a", ONE, None), ("a", ONE, None)], "'a'.*id of an earlier image"),
        ([], "no image to store"),
    ],
)
def test_what_no_model_could_use_is_not_written(tmp_path, images, message):
    with pytest.raises(DataError, match=rf"f\.safetensors.*{message}"):
        write_store(tmp_path / "f.safetensors", images, extractor="ours-1")
    assert not list(tmp_path.iterdir())


BOX = np.array([[0.1, 0.2, 0.5, 0.6]])


@pytest.mark.parametrize(
    ("features", "boxes", "message"),
    [
        (np.ones((1, 3)), BOX, None),
        (np.ones((1, 3)), None, None),
        (np.full((1, 3), 1e30, np.float32), BOX, r"features as large as 1e\+30, where the limit is 1e\+09"),
        (np.ones((1, 3)) + 1j, BOX, "values of type complex128, where real numbers are needed"),
        (np.ones(3), None, r"features of shape \(3,\)"),
        (np.ones((2, 3)), BOX, r"boxes of shape \(1, 4\) for 2 regions"),
        (np.full((1, 3), np.nan), BOX, "features that are NaN or infinite"),
        (np.ones((1, 3)), BOX * np.nan, "which leaves 0..1"),
        (np.ones((1, 3)), BOX[:, [2, 1, 0, 3]], "which is empty"),
    ],
)
def test_regions_are_validated(features, boxes, message):
    with nullcontext() if message is None else pytest.raises(ValueError, match=message):
        check_regions(features, boxes)


def test_a_store_of_a_later_format_names_the_version_that_it_needs(tmp_path):
    path = write_foreign(tmp_path / "f.safetensors", {}, {"format": "legenda.features.2", "legenda": "99.1"})
    with pytest.raises(DataError, match=r"f\.safetensors.*legenda>=99\.1"):
        PackedFeatureStore(path)


def write_foreign(path: Path, changes: dict[str, np.ndarray | None], metadata: dict[str, str | None]) -> Path:
    """A store of three images as another program would write it, with some arrays or entries changed or left out."""
    features, boxes = np.ones((6, 3), np.float16), np.tile(BOXES, (3, 1))
    arrays = {"features": features, "boxes": boxes, "offsets": np.array([0, 2, 4, 6]), **changes}
    entries = {"format": "legenda.features.1", "ids": json.dumps(["a", "b", "c"]), "extractor": "other", **metadata}
    kept = {name: array for name, array in arrays.items() if array is not None}
    save_file(kept, path, {key: value for key, value in entries.items() if value is not None})
    return path


def changed(array: np.ndarray, row: int, value: float) -> np.ndarray:
    copy = array.copy()
    copy[row, 1] = value
    return copy


@pytest.mark.parametrize(
    ("changes", "metadata", "message"),
    [
        ({}, {"format": None}, "not a feature store"),
        ({}, {"ids": "{"}, "cannot be read"),
        ({}, {"ids": '["a", "b", "a"]'}, "twice"),
        ({"features": None}, {}, "no array 'features'"),
        ({"offsets": np.array([0, 2, 2, 6])}, {}, "'offsets'"),
        ({"features": np.ones((6, 3), np.float64)}, {}, "'features' of .*F64, not F16 or F32"),
        ({"boxes": BOXES}, {}, "'boxes' of .* has the shape"),
    ],
)
def test_a_foreign_file_of_another_structure_is_refused(tmp_path, changes, metadata, message):
    with pytest.raises(DataError, match=message) as error:
        PackedFeatureStore(write_foreign(tmp_path / "f.safetensors", changes, metadata))
    assert "f.safetensors" in str(error.value)


def test_a_truncated_file_is_refused_wherever_it_ends(tmp_path):
    whole = tmp_path / "whole.safetensors"
    write(whole, make_images([2, 3], 4))
    content = whole.read_bytes()
    for length in {*range(0, len(content), 7), 8, len(content) - 1}:
        (tmp_path / "cut.safetensors").write_bytes(content[:length])
        with pytest.raises(DataError, match=r"cut\.safetensors"):
            PackedFeatureStore(tmp_path / "cut.safetensors")


@pytest.mark.parametrize("boxes", [True, False])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_a_changed_bit_is_found_by_the_checksum_of_its_image(tmp_path, boxes, dtype):
    path = tmp_path / "f.safetensors"
    images = make_images([2, 3, 1], 4, boxes=boxes)
    store = write(path, images, dtype)
    for position in range(3):
        store.verify(position)
    content = path.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    changed = [content.index(b"img1") + 3, start + 8 * (4 + 1)]  # a digit of the id, and the checksum
    for array in ("boxes", "features")[not boxes :]:
        begin, end = json.loads(content[8:start])[array]["data_offsets"]
        changed.append(start + begin + (end - begin) * 2 // 6)  # the first row of the second image
    for byte in changed:
        damaged = bytearray(content)
        damaged[byte] ^= 1 << 2
        path.write_bytes(damaged)
        store = PackedFeatureStore(path)
        store.read([1])
        with pytest.raises(DataError, match=r"f\.safetensors.*'img.'"):
            store.verify(1)
        store.verify(0)
        store.verify(2)
