"""Extraction in pieces: what is stopped goes on, and nothing of another extractor or picture gets in."""

import json
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from legenda.errors import UserError
from legenda.extractors import Extractor, extract_store
from legenda.features import PackedFeatureStore


class Counting:
    """Mean colours, and the sizes of all calls; stops with a key press at the picture of that number."""

    def __init__(self, stop_at: int | None = None, name: str = "mine-1") -> None:
        self.calls: list[int] = []
        self._left = stop_at
        self.extractor = Extractor(name, self)

    def __call__(self, pictures: list[Image.Image]) -> list[tuple[np.ndarray, np.ndarray]]:
        self.calls.append(len(pictures))
        if self._left is not None:
            self._left -= len(pictures)
            if self._left < 0:
                raise KeyboardInterrupt
        box = np.array([[0.0, 0.0, 1.0, 1.0]])
        return [(np.asarray(picture, np.float32).mean((0, 1))[None] / 3, box) for picture in pictures]


@pytest.fixture
def pictures(tmp_path) -> list[Path]:
    (tmp_path / "pictures").mkdir()
    paths = [tmp_path / "pictures" / f"{number}.png" for number in range(10)]
    for number, path in enumerate(paths):
        Image.fromarray(np.random.default_rng(number).integers(0, 256, (6, 8, 3), np.uint8)).save(path)
    return paths


def stop(pictures: list[Path], out: Path, at: int = 7) -> None:
    with pytest.raises(KeyboardInterrupt):
        extract_store(pictures, Counting(at).extractor, out, batch_size=1, piece=3)
    assert not out.exists()


def everything(store: PackedFeatureStore) -> np.ndarray:
    return store.read(list(store.ids)).features


def test_a_stopped_extraction_goes_on_and_ends_the_same(tmp_path, pictures):
    extract_store(pictures, Counting().extractor, tmp_path / "at_once.safetensors")
    out = tmp_path / "f.safetensors"
    stop(pictures, out)
    again = Counting()
    heard: list[tuple[int, int]] = []
    report = extract_store(
        pictures, again.extractor, out, batch_size=1, piece=3, progress=lambda *done: heard.append(done)
    )
    assert (report.images, report.kept, sum(again.calls)) == (10, 6, 4)
    assert heard[0] == (7, 10)
    assert heard[-1] == (10, 10)
    assert out.read_bytes() == (tmp_path / "at_once.safetensors").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["at_once.safetensors", "f.safetensors", "pictures"]


def test_more_and_fewer_pictures_and_changed_ones(tmp_path, pictures):
    out = tmp_path / "f.safetensors"
    stop(pictures[:9], out)
    time.sleep(0.01)
    Image.new("RGB", (6, 8), "red").save(pictures[2])
    again = Counting()
    chosen = [pictures[9], *pictures[1:5]]
    report = extract_store(chosen, again.extractor, out, piece=3)
    assert (report.images, report.kept, sum(again.calls)) == (5, 3, 2)
    store = PackedFeatureStore.open(out)
    assert store.ids == ("9", "1", "2", "3", "4")
    np.testing.assert_allclose(store.read(["2"]).features[0, 0], [85, 0, 0])


def test_an_unfinished_extraction_of_another_extractor_is_refused(tmp_path, pictures):
    out = tmp_path / "f.safetensors"
    stop(pictures, out)
    with pytest.raises(UserError, match=r"f\.safetensors\.parts holds an unfinished extraction by mine-1, not mine-2"):
        extract_store(pictures, Counting(name="mine-2").extractor, out)
    assert not out.exists()


def test_a_damaged_piece_is_named(tmp_path, pictures):
    out = tmp_path / "f.safetensors"
    stop(pictures, out)
    piece = next((tmp_path / ".f.safetensors.parts").glob("*0.safetensors"))
    piece.write_bytes(piece.read_bytes()[:-9])
    with pytest.raises(UserError, match=r"000000\.safetensors"):
        extract_store(pictures, Counting().extractor, out)


def test_a_piece_without_its_list_is_made_again(tmp_path, pictures):
    out = tmp_path / "f.safetensors"
    stop(pictures, out)
    (tmp_path / ".f.safetensors.parts" / "000001.json").unlink()
    again = Counting()
    assert extract_store(pictures, again.extractor, out, piece=3).kept == 3
    assert sum(again.calls) == 7


def test_broken_pictures_are_tried_again_and_listed(tmp_path, pictures):
    pictures[1].write_text("no picture")
    out = tmp_path / "f.safetensors"
    stop(pictures, out)
    report = extract_store(pictures, Counting().extractor, out, piece=3)
    assert [path for path, _ in report.skipped] == [pictures[1]]
    assert report.images == 9


@pytest.mark.parametrize("workers", [1, 4])
def test_workers_keep_the_order(tmp_path, pictures, workers):
    out = tmp_path / "f.safetensors"
    extract_store(pictures[::-1], Counting().extractor, out, batch_size=3, workers=workers)
    store = PackedFeatureStore.open(out)
    assert store.ids == tuple(str(n) for n in range(9, -1, -1))
    first = np.asarray(Image.open(pictures[4]), np.float32).mean((0, 1)) / 3
    np.testing.assert_allclose(store.read(["4"]).features[0, 0], first, rtol=1e-3)


def test_a_width_that_changes_is_found_at_once(tmp_path, pictures):
    out = tmp_path / "f.safetensors"
    stop(pictures, out)

    def other(batch: list[Image.Image]) -> list[tuple[np.ndarray, np.ndarray]]:
        return [(np.ones((1, 4)), np.array([[0.0, 0.0, 1.0, 1.0]])) for _ in batch]

    with pytest.raises(UserError, match="width 4, but those before 3"):
        extract_store(pictures, Extractor("mine-1", other), out)
    with pytest.raises(UserError, match="float16 ends"):
        extract_store(pictures[:1], Extractor("x", huge), tmp_path / "g.safetensors")


def huge(batch: list[Image.Image]) -> list[tuple[np.ndarray, None]]:
    return [(np.full((1, 3), 1e6), None) for _ in batch]


@pytest.mark.parametrize("option", ["workers", "piece", "batch_size"])
def test_none_of_them_is_refused(tmp_path, pictures, option):
    with pytest.raises(UserError, match=f"{option} is 0"):
        extract_store(pictures, Counting().extractor, tmp_path / "f.safetensors", **{option: 0})


def test_pieces_are_ordinary_stores(tmp_path, pictures):
    stop(pictures, tmp_path / "f.safetensors")
    folder = tmp_path / ".f.safetensors.parts"
    assert len(json.loads((folder / "000000.json").read_text())) == 3
    assert everything(PackedFeatureStore.open(folder / "000000.safetensors")).shape == (3, 1, 3)
