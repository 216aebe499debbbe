"""Resuming an extraction from its shards."""

import json
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from legenda.data.features import PackedFeatureStore
from legenda.errors import LegendaError
from legenda.extractors import Extractor, extract_store


class Counting:
    """Mean colors, and the sizes of all calls; stops with a key press at the image of that number."""

    def __init__(self, stop_at: int | None = None, name: str = "mine-1") -> None:
        self.calls: list[int] = []
        self._left = stop_at
        self.extractor = Extractor(name, self)

    def __call__(self, images: list[Image.Image]) -> list[tuple[np.ndarray, np.ndarray]]:
        self.calls.append(len(images))
        if self._left is not None:
            self._left -= len(images)
            if self._left < 0:
                raise KeyboardInterrupt
        box = np.array([[0.0, 0.0, 1.0, 1.0]])
        return [(np.asarray(image, np.float32).mean((0, 1))[None] / 3, box) for image in images]


@pytest.fixture
def images(tmp_path) -> list[Path]:
    (tmp_path / "images").mkdir()
    paths = [tmp_path / "images" / f"{number}.png" for number in range(10)]
    for number, path in enumerate(paths):
        Image.fromarray(np.random.default_rng(number).integers(0, 256, (6, 8, 3), np.uint8)).save(path)
    return paths


def stop(images: list[Path], out: Path, at: int = 7) -> None:
    with pytest.raises(KeyboardInterrupt):
        extract_store(images, Counting(at).extractor, out, batch_size=1, shard_size=3)
    assert not out.exists()


def everything(store: PackedFeatureStore) -> np.ndarray:
    return store.read(list(store.ids)).features


def test_a_resumed_extraction_equals_an_uninterrupted_one(tmp_path, images):
    extract_store(images, Counting().extractor, tmp_path / "at_once.safetensors")
    out = tmp_path / "f.safetensors"
    stop(images, out)
    again = Counting()
    steps: list[tuple[int, int]] = []
    report = extract_store(
        images, again.extractor, out, batch_size=1, shard_size=3, progress=lambda *done: steps.append(done)
    )
    assert (report.images, report.cached, sum(again.calls)) == (10, 6, 4)
    assert steps[0] == (7, 10)
    assert steps[-1] == (10, 10)
    assert out.read_bytes() == (tmp_path / "at_once.safetensors").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["at_once.safetensors", "f.safetensors", "images"]


def test_resuming_with_other_and_changed_images(tmp_path, images):
    out = tmp_path / "f.safetensors"
    stop(images[:9], out)
    time.sleep(0.01)
    Image.new("RGB", (6, 8), "red").save(images[2])
    again = Counting()
    selected = [images[9], *images[1:5]]
    report = extract_store(selected, again.extractor, out, shard_size=3)
    assert (report.images, report.cached, sum(again.calls)) == (5, 3, 2)
    store = PackedFeatureStore(out)
    assert store.ids == ("9", "1", "2", "3", "4")
    np.testing.assert_allclose(store.read(["2"]).features[0, 0], [85, 0, 0])


def test_shards_of_another_extractor_raise(tmp_path, images):
    out = tmp_path / "f.safetensors"
    stop(images, out)
    with pytest.raises(LegendaError, match=r"\.parts holds an unfinished extraction by mine-1, not mine-2"):
        extract_store(images, Counting(name="mine-2").extractor, out)
    assert not out.exists()


def test_a_damaged_shard_raises(tmp_path, images):
    out = tmp_path / "f.safetensors"
    stop(images, out)
    shard = next((tmp_path / ".f.safetensors.parts").glob("*0.safetensors"))
    shard.write_bytes(shard.read_bytes()[:-9])
    with pytest.raises(LegendaError, match=r"000000\.safetensors"):
        extract_store(images, Counting().extractor, out)


def test_damaged_notes_of_a_shard(tmp_path, images):
    out = tmp_path / "f.safetensors"
    stop(images, out)
    notes = tmp_path / ".f.safetensors.parts" / "000000.json"
    for content in (5, [], {}, [None] * 9):
        notes.write_text(json.dumps(content))
        with pytest.raises(LegendaError, match=r"000000\.json holds no sizes and times of the 3 image files; remove"):
            extract_store(images, Counting().extractor, out)
    notes.write_text(json.dumps([None, {}, [1]]))  # like files that have changed
    assert extract_store(images, Counting().extractor, out).images == len(images)


def test_a_shard_without_its_json_is_extracted_again(tmp_path, images):
    out = tmp_path / "f.safetensors"
    stop(images, out)
    (tmp_path / ".f.safetensors.parts" / "000001.json").unlink()
    again = Counting()
    assert extract_store(images, again.extractor, out, shard_size=3).cached == 3
    assert sum(again.calls) == 7


def test_unreadable_images_are_reported_after_resuming(tmp_path, images):
    images[1].write_text("no image")
    out = tmp_path / "f.safetensors"
    stop(images, out)
    report = extract_store(images, Counting().extractor, out, shard_size=3)
    assert [path for path, _ in report.skipped] == [images[1]]
    assert report.images == 9


@pytest.mark.parametrize("workers", [1, 4])
def test_workers_keep_the_order(tmp_path, images, workers):
    out = tmp_path / "f.safetensors"
    extract_store(images[::-1], Counting().extractor, out, batch_size=3, workers=workers)
    store = PackedFeatureStore(out)
    assert store.ids == tuple(str(n) for n in range(9, -1, -1))
    first = np.asarray(Image.open(images[4]), np.float32).mean((0, 1)) / 3
    np.testing.assert_allclose(store.read(["4"]).features[0, 0], first, rtol=1e-3)


def test_a_changed_width_raises_at_once(tmp_path, images):
    out = tmp_path / "f.safetensors"
    stop(images, out)

    def other(batch: list[Image.Image]) -> list[tuple[np.ndarray, np.ndarray]]:
        return [(np.ones((1, 4)), np.array([[0.0, 0.0, 1.0, 1.0]])) for _ in batch]

    with pytest.raises(LegendaError, match="width 4, but those before 3"):
        extract_store(images, Extractor("mine-1", other), out)
    with pytest.raises(LegendaError, match="where the limit is 65504"):
        extract_store(images[:1], Extractor("x", huge), tmp_path / "g.safetensors")


def huge(batch: list[Image.Image]) -> list[tuple[np.ndarray, None]]:
    return [(np.full((1, 3), 1e6), None) for _ in batch]


@pytest.mark.parametrize("option", ["workers", "shard_size", "batch_size"])
def test_options_below_1_raise(tmp_path, images, option):
    with pytest.raises(LegendaError, match=f"{option} is 0"):
        extract_store(images, Counting().extractor, tmp_path / "f.safetensors", **{option: 0})


def test_shards_are_feature_stores(tmp_path, images):
    stop(images, tmp_path / "f.safetensors")
    folder = tmp_path / ".f.safetensors.parts"
    assert len(json.loads((folder / "000000.json").read_text())) == 3
    assert everything(PackedFeatureStore(folder / "000000.safetensors")).shape == (3, 1, 3)
