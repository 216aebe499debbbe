"""Packed feature stores of other programs and damaged ones: valid ones are read, all others are refused."""

import json
from pathlib import Path

import numpy as np
import pytest
from packed_files import BOXES, make_images, write
from safetensors.numpy import save_file

from legenda.data.features import PackedFeatureStore
from legenda.errors import DataError


def write_foreign(path: Path, changes: dict[str, np.ndarray | None], metadata: dict[str, str | None]) -> Path:
    """A store of three images as another program would write it, with some arrays or entries changed or left out."""
    features, boxes = np.ones((6, 3), np.float16), np.tile(BOXES, (3, 1))
    arrays = {"features": features, "boxes": boxes, "offsets": np.array([0, 2, 4, 6]), **changes}
    entries = {
        "format": "legenda.features.1",
        "ids": json.dumps(["a", "b", "c"]),
        "extractor": "other",
        **metadata,
    }
    kept = {name: array for name, array in arrays.items() if array is not None}
    save_file(kept, path, {key: value for key, value in entries.items() if value is not None})
    return path


def changed(array: np.ndarray, row: int, value: float) -> np.ndarray:
    copy = array.copy()
    copy[row, 1] = value
    return copy


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_a_foreign_file_with_a_bad_number_is_found_out_at_reading(tmp_path, value, dtype):
    path = write_foreign(tmp_path / "f.safetensors", {"features": changed(np.ones((6, 3), dtype), 3, value)}, {})
    store = PackedFeatureStore(path)
    store.read(["a", "c"])
    with pytest.raises(DataError, match="'b' has features that are NaN or infinite"):
        store.read(["c", "b", "a"])
    with pytest.raises(DataError, match="'b'"):
        store.check()


def test_a_foreign_file_with_an_empty_box_is_found_out_at_reading(tmp_path):
    path = write_foreign(tmp_path / "f.safetensors", {"boxes": changed(np.tile(BOXES, (3, 1)), 5, 0.9)}, {})
    store = PackedFeatureStore(path)
    with pytest.raises(DataError, match=r"'c' has the box .* is empty"):
        store.read(["a", "c"])


@pytest.mark.parametrize(
    ("changes", "metadata", "message"),
    [
        ({}, {"format": None}, "not a feature store"),
        ({}, {"ids": None}, "'ids'"),
        ({}, {"ids": "[1, 2, 3]"}, "'ids'"),
        ({}, {"ids": "[]"}, "'ids'"),
        ({}, {"ids": "{"}, "cannot be read"),
        ({}, {"ids": '["a", "b", "a"]'}, "twice"),
        ({}, {"ids": '["a", "b"]'}, "'offsets'.*2 images"),
        ({"offsets": None}, {}, "no array 'offsets'"),
        ({"features": None}, {}, "no array 'features'"),
        ({"offsets": np.array([0, 2, 2, 6])}, {}, "'offsets'"),
        ({"offsets": np.array([0, 4, 2, 6])}, {}, "'offsets'"),
        ({"offsets": np.array([0, 2, 4, 7])}, {}, "'offsets'"),
        ({"offsets": np.array([[0, 2, 4, 6]])}, {}, "'offsets'"),
        ({"offsets": np.array([0, 2, 4, 6], np.int32)}, {}, "'offsets' of .*I32, not I64"),
        ({"features": np.ones((6, 3), np.float64)}, {}, "'features' of .*F64, not F16 or F32"),
        ({"features": np.ones((3, 2, 3), np.float16)}, {}, "'features' of .* has the shape"),
        ({"boxes": BOXES}, {}, "'boxes' of .* has the shape"),
    ],
)
def test_a_foreign_file_of_another_structure_is_refused(tmp_path, changes, metadata, message):
    with pytest.raises(DataError, match=message) as error:
        PackedFeatureStore(write_foreign(tmp_path / "f.safetensors", changes, metadata))
    assert "f.safetensors" in str(error.value)


def test_a_foreign_file_of_the_right_structure_is_read(tmp_path):
    store = PackedFeatureStore(write_foreign(tmp_path / "f.safetensors", {"boxes": None}, {}))
    store.check()
    assert (store.extractor, store.has_boxes, store.read(["c"]).features.sum()) == ("other", False, 6)


def test_a_truncated_file_is_refused_wherever_it_ends(tmp_path):
    whole = tmp_path / "whole.safetensors"
    write(whole, make_images([2, 3], 4))
    content = whole.read_bytes()
    for length in {*range(0, len(content), 7), 8, len(content) - 1}:
        (tmp_path / "cut.safetensors").write_bytes(content[:length])
        with pytest.raises(DataError, match=r"cut\.safetensors"):
            PackedFeatureStore(tmp_path / "cut.safetensors")


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("boxes", {"data_offsets": [0, 96]}, "cannot be read"),
        ("boxes", {"data_offsets": [-8, 88]}, "cannot be read"),
        ("boxes", {"data_offsets": ["a", "b"]}, "cannot be read"),
        ("features", {"shape": [-6, -3]}, "cannot be read"),
        ("features", {"shape": 5}, "cannot be read"),
        ("offsets", {"shape": [10**18, 0]}, "cannot be read"),
    ],
)
def test_a_header_that_does_not_fit_its_arrays_is_refused(tmp_path, name, change, message):
    content = write_foreign(tmp_path / "f.safetensors", {}, {}).read_bytes()
    length = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:length])
    header[name] |= change
    text = json.dumps(header).encode()
    (tmp_path / "f.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + content[length:])
    with pytest.raises(DataError, match=message):
        PackedFeatureStore(tmp_path / "f.safetensors")


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
        with pytest.raises(
            DataError, match=r"f\.safetensors: image 'img.' differs from its checksum; extract it again"
        ):
            store.verify(1)
        store.verify(0)
        store.verify(2)


def test_a_file_without_checksums_is_read(tmp_path):
    store = PackedFeatureStore(write_foreign(tmp_path / "f.safetensors", {}, {}))
    store.read([0])
    store.verify(0)


@pytest.mark.parametrize("content", [b"", b"not a store, but a text of some length", b"\x02" + b"\0" * 7 + b"[]"])
def test_a_file_of_another_kind_is_refused(tmp_path, content):
    (tmp_path / "f.safetensors").write_bytes(content)
    with pytest.raises(DataError, match=r"f\.safetensors cannot be read"):
        PackedFeatureStore(tmp_path / "f.safetensors")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"absent\.safetensors does not exist"):
        PackedFeatureStore(tmp_path / "absent.safetensors")
