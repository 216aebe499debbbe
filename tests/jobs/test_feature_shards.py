"""Shards of features: the same features as without a job, broken images, kills, and folders that are not complete."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from legenda.data.features import open_features, write_store
from legenda.data.features.packed import ShardedStore
from legenda.errors import DataError, LegendaError
from legenda.extractors import Extractor, FrameSampling, extract_store
from legenda.jobs.features import FeatureTask, check_job_ids
from legenda.jobs.job import Job, collect_stats, open_job
from legenda.jobs.shards import process_shard


class Killed(BaseException):
    """Ends a worker without cleanup, as far as one process can simulate it."""


class Colors:
    """Mean colors of an image and of its left half; is killed by black images and too large for those of one pixel."""

    def __init__(self) -> None:
        self.deadly = False
        self.images = 0

    def __call__(self, images: list[Image.Image]) -> list[tuple[np.ndarray, np.ndarray]]:
        regions = []
        for image in images:
            self.images += 1
            pixels = np.asarray(image, np.float32)
            if self.deadly and not pixels.any():
                raise Killed
            means = np.stack([pixels.mean((0, 1)), pixels[:, : pixels.shape[1] // 2].sum((0, 1))])
            means = means[: 1 + image.height % 2] * (1e4 if image.width == 1 else 1)
            regions.append((means, np.array([[0, 0, 1, 1], [0, 0, 0.5, 1]], np.float32)[: len(means)]))
        return regions


@pytest.fixture
def images(tmp_path) -> Path:
    """Ten images, one of them black, one damaged and one whose features are too large."""
    folder = tmp_path / "images"
    folder.mkdir()
    for number in range(10):
        pixels = np.random.default_rng(number).integers(1, 256, (4 + number % 3, 6, 3), np.uint8)
        Image.fromarray(pixels * (number != 5)).save(folder / f"{number}.png")
    (folder / "7.png").write_text("no image")
    Image.new("RGB", (1, 1), "white").save(folder / "8.png")
    return folder


@pytest.fixture
def start(tmp_path, images) -> Callable[..., Job]:
    def open_(*sources: Path, **settings: Any) -> Job:
        names = [str(source) for source in sources or (images,)]
        return open_job(tmp_path / "out", names, settings, shard_size=4, allow_urls=False, kind="features")

    return open_


def extract_all(job: Job, colors: Colors) -> Any:
    task = FeatureTask(Extractor("colors", colors), "colors")
    return collect_stats(job, (process_shard(job, shard, task, 3) for shard in range(job.shards)), lambda *_: None)


def test_shards_hold_the_features_of_a_single_file_and_the_errors(start, images, tmp_path):
    stats = extract_all(start(), Colors())
    assert (stats.shards, stats.images, stats.failed, stats.cached) == (3, 10, 2, 0)
    lines = [json.loads(line) for path in sorted((tmp_path / "out").glob("*.jsonl")) for line in path.open()]
    errors = {Path(line["image"]).name: line["error"] for line in lines if "error" in line}
    assert errors.keys() == {"7.png", "8.png"}
    assert "7.png is not an image of a known type" in errors["7.png"]
    assert "the limit is 65504" in errors["8.png"]
    good = [path for path in sorted(images.iterdir()) if path.name not in errors]
    extract_store(good, Extractor("colors", Colors()), tmp_path / "f.safetensors")
    sharded, single = open_features(tmp_path / "out"), open_features(tmp_path / "f.safetensors")
    assert (sharded.ids, sharded.extractor) == (single.ids, "colors")
    assert (sharded.feature_dim, sharded.has_boxes) == (3, True)
    order = ["9", "0", "9", "6", "1", "4"]
    for attribute in ("features", "boxes", "mask"):
        found, expected = (getattr(store.read(order), attribute) for store in (sharded, single))
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)
    assert sharded.read([]).features.shape == (0, 0, 3)
    sharded.check()


def test_a_stopped_job_resumes_and_repeats_nothing(start, tmp_path):
    colors = Colors()
    colors.deadly = True
    with pytest.raises(Killed):
        extract_all(start(), colors)
    with pytest.raises(DataError, match="holds 1 of 3 shards; call legenda extract again"):
        open_features(tmp_path / "out")
    complete = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("features-00000000*")}
    assert len(complete) == 2
    colors.deadly, colors.images = False, 0
    assert extract_all(start(), colors).cached == 4
    assert colors.images == 5  # the damaged one is not read, those of the first shard are not repeated
    assert {path: path.stat().st_mtime_ns for path in complete} == complete
    assert len(open_features(tmp_path / "out")) == 8
    assert not list((tmp_path / "out").glob(".*"))


def test_a_store_without_its_lines_is_written_again(start, tmp_path):
    """A worker that is killed between the two files of a shard leaves the first."""
    extract_all(start(), Colors())
    (tmp_path / "out" / "features-00000001.jsonl").unlink()
    (tmp_path / "out" / "features-00000001.safetensors").write_bytes(b"partial")
    assert extract_all(start(), Colors()).cached == 6
    open_features(tmp_path / "out").check()


def test_a_shard_of_broken_images_has_no_store(start, images, tmp_path):
    for number in range(4):
        (images / f"{number}.png").write_text("no image")
    assert extract_all(start(), Colors()).failed == 6
    assert not (tmp_path / "out" / "features-00000000.safetensors").exists()
    assert open_features(tmp_path / "out").ids == ("4", "5", "6", "9")
    (tmp_path / "out" / "features-00000001.safetensors").unlink()
    with pytest.raises(
        DataError, match=r"features-00000001\.safetensors is missing; delete .*1\.jsonl and extract again"
    ):
        open_features(tmp_path / "out")
    for path in (tmp_path / "out").glob("features-*"):
        path.unlink() if path.suffix == ".safetensors" else path.write_text('{"image": "0.png", "error": "broken"}\n')
    with pytest.raises(DataError, match=r"holds no features of any image; see the errors in its \.jsonl"):
        open_features(tmp_path / "out")


def test_videos_are_listed_and_their_frames_stored(tmp_path):
    av = pytest.importorskip("av", reason="needs the extra video")
    (tmp_path / "clips").mkdir()
    for name in ("a.mp4", "b.mp4"):
        with av.open(str(tmp_path / "clips" / name), "w") as container:
            stream = container.add_stream("mpeg4", rate=10)
            stream.width, stream.height, stream.pix_fmt = 32, 32, "yuv420p"
            for _ in range(4):
                container.mux(stream.encode(av.VideoFrame.from_image(Image.new("RGB", (32, 32), "gray"))))
            container.mux(stream.encode())
    (tmp_path / "clips" / "c.mkv").write_text("no video")
    Image.new("RGB", (4, 4)).save(tmp_path / "clips" / "d.png")
    options = {"shard_size": 2, "allow_urls": False, "kind": "features", "medium": "video"}
    job = open_job(tmp_path / "out", [str(tmp_path / "clips")], {}, **options)
    task = FeatureTask(Extractor("colors", Colors()), "colors@3frames", FrameSampling(num_frames=3))
    stats = collect_stats(job, (process_shard(job, shard, task, 2) for shard in range(job.shards)), lambda *_: None)
    assert (stats.images, stats.failed) == (3, 1)
    (line,) = [json.loads(line) for line in (tmp_path / "out" / "features-00000001.jsonl").open()]
    assert "c.mkv cannot be decoded (" in line["error"]
    store = open_features(tmp_path / "out")
    assert (store.ids, store.has_boxes) == (("a", "b"), False)
    assert store.read(["b"]).features.shape == (1, 3, 3)


def test_images_of_one_id_and_other_extractors_are_refused(start, images):
    (images / "below").mkdir()
    (images / "0.png").rename(images / "below" / "1.png")
    job = start(extractor="a")
    with pytest.raises(DataError, match=r"1\.png and .*1\.png would share the id '1'"):
        check_job_ids(job)
    with pytest.raises(LegendaError, match="holds features made with extractor a, not b"):
        start(extractor="b")


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        ({"kind": "captions"}, "holds captions, not features; name a folder that legenda extract"),
        ({"images": 1}, "has no 'kind'"),
        ([], "has no 'kind'"),
        ({"kind": "features", "images": "3", "shard_size": 1}, "'images' of .* is of type str"),
    ],
)
def test_other_folders_are_refused(tmp_path, manifest, message):
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(DataError, match=message):
        ShardedStore(tmp_path)


def test_shards_of_two_layouts_are_refused(start, tmp_path):
    extract_all(start(), Colors())
    one = (np.ones((1, 5)), None)

    write_store(tmp_path / "out" / "features-00000002.safetensors", [("8", *one)], extractor="colors")
    with pytest.raises(DataError, match="features of another layout"):
        open_features(tmp_path / "out")
