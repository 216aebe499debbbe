"""Converting between kinds of stores keeps every number, and says so by a checksum."""

from functools import partial
from pathlib import Path

import h5py
import numpy as np
import pytest
from PIL import Image

from legenda.errors import DataError
from legenda.features import write_store
from legenda.features.convert import convert, inspect_store
from legenda.features.extraction import FeatureTask, extract_shards
from legenda.features.readers import open_features
from legenda.images.extractor import Extractor
from legenda.images.shards import process_here

IDS = ("9", "25", "30")
BOX = np.array([[0.1, 0.2, 0.5, 0.75], [0, 0, 1, 1]], np.float32)


def make(
    path: Path, ids: tuple[str, ...] = IDS, *, boxes: bool = True, extractor: str = "own-1", width: int = 5
) -> Path:
    rng = np.random.default_rng(len(ids))
    regions = [(i, rng.standard_normal((2, width)).astype(np.float32), BOX if boxes else None) for i in ids]
    write_store(path, regions, extractor=extractor, dtype="float32")
    return path


@pytest.mark.parametrize("boxes", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_round_trips_through_every_kind_keep_the_checksum(tmp_path, boxes, dtype):
    source = make(tmp_path / "a.safetensors", boxes=boxes)
    checksums, progress_calls = set(), []
    for before, after in (("a.safetensors", "b.hdf5"), ("b.hdf5", "c"), ("c", "d.h5"), ("d.h5", "e.safetensors")):
        report = convert(
            [tmp_path / before], tmp_path / after, dtype=dtype, progress=lambda *call: progress_calls.append(call)
        )
        assert (report.images, report.regions, report.feature_dim, report.has_boxes) == (3, 6, 5, boxes)
        assert str(report.extractor) == "own-1"
        assert progress_calls[-1] == (3, 3)
        checksums.add(report.checksum)
    first, last = open_features(source).read(IDS), open_features(tmp_path / "e.safetensors").read(IDS)
    np.testing.assert_array_equal(first.features.astype(dtype), last.features)
    if boxes:
        assert first.boxes is not None
        assert last.boxes is not None
        np.testing.assert_array_equal(first.boxes, last.boxes)
    assert len(checksums) == 1


def test_damage_is_not_copied(tmp_path):
    source = make(tmp_path / "a.safetensors")
    content = bytearray(source.read_bytes())
    content[-200] ^= 1
    source.write_bytes(content)
    with pytest.raises(DataError, match="checksum"):
        convert([source], tmp_path / "b.hdf5")
    assert not (tmp_path / "b.hdf5").exists()


def test_parts_are_joined_in_their_order(tmp_path):
    parts = [make(tmp_path / "a.safetensors", ("9", "3")), make(tmp_path / "b.safetensors", ("7",))]
    convert(parts, tmp_path / "all.safetensors")
    assert open_features(tmp_path / "all.safetensors").ids == ("9", "3", "7")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("info.json", '{"images": [{"id": 30, "file_name": "COCO_test2014_000000000030.jpg"}, {"id": 9}]}'),
        ("ids.json", '[30, "9"]'),
        ("ids.txt", "COCO_test2014_000000000030.jpg\n\n9\n"),
    ],
)
def test_a_list_selects_images_by_id_or_file(tmp_path, name, content):
    source = make(tmp_path / "a.safetensors", ("COCO_test2014_000000000030", "25", "9"))
    (tmp_path / name).write_text(content)
    report = convert([source], tmp_path / "some.safetensors", ids=tmp_path / name)
    some = open_features(tmp_path / "some.safetensors")
    assert some.ids == ("COCO_test2014_000000000030", "9")
    assert report.images == 2
    np.testing.assert_array_equal(some.read(["9"]).features, open_features(source).read(["9"]).features)


@pytest.mark.parametrize("content", ['{"annotations": []}', "[true]", "[9, 4]", "[]"])
def test_a_list_of_no_images_or_of_missing_ones_is_refused(tmp_path, content):
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(DataError, match=r"a\.json"):
        convert([make(tmp_path / "a.safetensors")], tmp_path / "b.safetensors", ids=tmp_path / "a.json")
    assert not (tmp_path / "b.safetensors").exists()


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ({"ids": ("7",), "extractor": "other-1"}, "made by the extractor own-1, but .* by other-1"),
        ({"ids": ("7", "25")}, "image '25' is in .*a.safetensors and in .*b.safetensors"),
        ({"ids": ("7",), "width": 6}, "image '7' .*width 6, those before 5"),
        ({"ids": ("7",), "boxes": False}, "image '7' .*no boxes, unlike those before"),
    ],
)
def test_what_does_not_belong_together_is_refused(tmp_path, second, message):
    parts = [make(tmp_path / "a.safetensors"), make(tmp_path / "b.safetensors", **second)]
    with pytest.raises(DataError, match=message):
        convert(parts, tmp_path / "all.safetensors")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.safetensors", "b.safetensors"]


@pytest.mark.parametrize("out", ["b.safetensors", "b.hdf5", "b"])
def test_too_large_for_float16_is_named_and_nothing_is_written(tmp_path, out):
    write_store(tmp_path / "a.safetensors", [("1", np.full((1, 2), 1e5), None)], extractor="x", dtype="float32")
    with pytest.raises(DataError, match=rf"{out}.*'1'.*65504"):
        convert([tmp_path / "a.safetensors"], tmp_path / out, dtype="float16")
    assert [path.name for path in tmp_path.iterdir()] == ["a.safetensors"]


def test_where_to_write_is_checked(tmp_path):
    source = make(tmp_path / "a.safetensors")
    (tmp_path / "folder").mkdir()
    for out, message in (("b.lmdb", "ends in .lmdb"), ("folder", "exists already"), ("a.safetensors", "is one of the")):
        with pytest.raises(DataError, match=message):
            convert([source], tmp_path / out)
    with pytest.raises(DataError):
        convert([], tmp_path / "b.hdf5")
    assert open_features(source).ids == IDS


@pytest.mark.parametrize("names", [("9.jpg",), ("9", "9_box")])
def test_an_id_that_a_folder_cannot_hold_is_named(tmp_path, names):
    source = make(tmp_path / "a.safetensors", names)
    with pytest.raises(DataError, match=f"{names[-1]}.*hdf5"):
        convert([source], tmp_path / "folder")
    assert [path.name for path in tmp_path.iterdir()] == ["a.safetensors"]


def test_the_file_of_a_kind_is_not_overwritten(tmp_path):
    source = tmp_path / "both.hdf5"
    with h5py.File(source, "w") as file:
        file["9_grids"], file["9_features"] = np.ones((49, 4), np.float32), np.ones((3, 4), np.float32)
    content = source.read_bytes()
    with pytest.raises(DataError):
        convert([f"{source}:grids"], source)
    assert source.read_bytes() == content


@pytest.mark.parametrize("verify", [True, False])
def test_damage_in_a_shard_is_found(tmp_path, verify):
    """A job of features is read and merged as one store, whose shards have checksums, too."""
    (tmp_path / "photos").mkdir()
    for name in "abc":
        Image.new("RGB", (8, 8)).save(tmp_path / "photos" / f"{name}.png")
    extractor = Extractor("mine", lambda images: [(np.ones((2, 9), np.float32), BOX) for _ in images])
    task = FeatureTask(extractor, extractor.identity)
    run = partial(process_here, task=task)
    extract_shards([str(tmp_path / "photos")], extractor.identity, tmp_path / "job", run, shard_size=2)
    shard = sorted((tmp_path / "job").glob("*.safetensors"))[1]
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    shard.write_bytes(content)
    steps = []
    _, problems = inspect_store(tmp_path / "job", verify=verify, progress=lambda *step: steps.append(step))
    assert (len(problems), steps[-1]) == (verify, (3, 3))
    with pytest.raises(DataError, match="checksum"):
        convert([tmp_path / "job"], tmp_path / "all.safetensors")
