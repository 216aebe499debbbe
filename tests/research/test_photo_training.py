"""What the training of the packaged captioner of photographs reads, and how it damages boxes."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

from legenda.registry import load_plugin
from legenda.text import Vocabulary

SCRIPTS = Path(__file__).resolve().parents[2] / "research" / "photo"
DATA = Path(__file__).resolve().parents[3] / "shared" / "data"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(SCRIPTS)
    known = set(sys.modules)
    yield importlib.import_module
    for name in set(sys.modules) - known:
        if str(SCRIPTS) in str(getattr(sys.modules[name], "__file__", None)):
            del sys.modules[name]


@pytest.mark.slow
@pytest.mark.skipif(not (DATA / "coco_splits").exists(), reason="needs the shared data sets")
def test_no_withheld_image_is_read(script):
    captions = script("coco")
    lists = [DATA / "coco_splits" / f"{name}.txt" for name in ("withheld_photos", "karpathy_val_images")]
    lists.append(DATA / "coco_splits" / "karpathy_test_images.txt")
    withheld = {int(line.split()[-1]) for path in lists for line in path.read_text().splitlines() if line.strip()}
    assert len(withheld) > 10_000
    used = {int(image.id) for image in captions.coco_images(DATA)}
    assert len(used) > 100_000
    assert not used & withheld
    photographs = captions.read_photographs(DATA)
    ids = np.array([entry["cocoid"] for entry in photographs])
    assert len(ids) == len(set(ids.tolist())) > 5000
    splits = captions.split_photographs(photographs, {})
    chosen = np.isin(splits, [captions.TRAIN, captions.VALIDATION])
    assert not set(ids[chosen].tolist()) & withheld
    measured = set(ids[splits == captions.MEASURED].tolist())
    assert len(measured) == 456
    withheld_photos = {int(line) for line in lists[0].read_text().split()}
    assert not set(ids.tolist()) & withheld_photos


@pytest.mark.skipif(not (DATA / "flickr8k").exists(), reason="needs the shared data sets")
def test_training_photographs_of_flickr8k_follow_those_of_coco(script):
    captions = script("coco")
    coco, both = captions.read_photographs(DATA), captions.read_photographs(DATA, flickr8k=True)
    assert both[: len(coco)] == coco
    more = both[len(coco) :]
    assert len(more) == len({entry["filename"] for entry in more}) == 5999
    assert {entry["split"] for entry in more} == {"train"}
    shown = captions.detected_classes(DATA, more)
    assert [*shown] == [entry["cocoid"] for entry in more] == [-number for number in range(1, 6000)]
    splits = captions.split_photographs(both, {})
    assert (splits[: len(coco)] == captions.split_photographs(coco, {})).all()
    assert (splits[len(coco) :] == captions.TRAIN).all()
    entry = next(entry for entry in more if entry["orig_width"] == 500 and entry["orig_height"] == 333)
    assert captions.open_photograph(entry).size == (320, 213)


def test_surplus_photographs_of_sports_are_left_out(script):
    captions = script("coco")
    entries = [{"cocoid": number, "split": "train", "folder": Path("coco_photos_more/images")} for number in range(400)]
    entries += [{"cocoid": 400, "split": "val", "folder": Path("coco_photos_more/images")}]
    entries += [{"cocoid": 401, "split": "val", "folder": Path("coco_photos/images")}]
    splits = captions.split_photographs(entries, {number: {0, 38} for number in range(300)})
    assert (splits[300:400] == captions.TRAIN).all()
    assert 50 < (splits[:300] == captions.TRAIN).sum() < 130
    assert splits[400:].tolist() == [captions.MEASURED, captions.VALIDATION]


def test_a_caption_says_a_noun_once(script):
    module = script("nouns")
    vocabulary = Vocabulary(("<end>", "<unk>", "a", "dog", "dogs", "two", "brown", "on", "bus", "stop"))
    captions = [[2, 3, 7, 2, 8, 9, 0], [2, 6, 3, 0, -1, -1, -1], [5, 4, 7, 2, 3, 0, -1]]
    nouns = module.find_nouns(np.array([captions] * 60, np.int16), vocabulary)
    assert nouns == ["dog", "dogs"]
    assert [*module.with_plurals(nouns)] == [("dog", "dogs")]


def _noise(script):
    """Objects of class 3 are seen half the time, shifted by a tenth; photographs of it hold a false detection of 7."""
    module = script("noise")
    pools = [np.zeros(0, int)] * (5 * module.CLASSES + 5)
    for size in range(5):
        pools[5 * 3 + size] = np.arange(40)
    donors = [np.arange(20) if index in (3, module.CLASSES) else np.zeros(0, int) for index in range(81)]
    return module.DetectorNoise(
        pools=np.concatenate(pools),
        pool_starts=np.cumsum([0, *map(len, pools)]),
        record_starts=np.concatenate([np.arange(21), np.full(20, 20)]),
        boxes=np.tile(np.array([0.1, 0.1, 1.1, 1.1], np.float32), (20, 1)),
        scores=np.full(20, 0.5, np.float32),
        classes=np.full(20, module.SAME, np.uint8),
        free_starts=np.arange(21),
        free_boxes=np.tile(np.array([0, 0, 0.1, 0.1], np.float32), (20, 1)),
        free_scores=np.full(20, 0.3, np.float32),
        free_classes=np.full(20, 7, np.uint8),
        donors=np.concatenate(donors),
        donor_starts=np.cumsum([0, *map(len, donors)]),
    )


def test_drawn_detections_have_the_measured_recall_shift_and_errors(script):
    truth = np.tile(np.array([0.2, 0.2, 0.6, 0.4], np.float32), (400, 1))
    starts = np.arange(0, 401, 4)
    noise = _noise(script)
    boxes, scores, classes, image = noise.draw(truth, np.full(400, 3), starts, np.random.default_rng(0))
    seen = classes == 3
    assert 150 < seen.sum() < 250
    np.testing.assert_allclose(boxes[seen], np.tile([0.24, 0.22, 0.64, 0.42], (seen.sum(), 1)), atol=1e-6)
    assert (classes[~seen] == 7).all()
    assert np.bincount(image[~seen], minlength=100).tolist() == [1] * 100
    assert set(scores[seen].tolist()) == {0.5}
    again = noise.draw(truth, np.full(400, 3), starts, np.random.default_rng(1))
    assert len(again[0]) != len(boxes) or not np.array_equal(again[3], image)


@pytest.mark.usefixtures("forget_plugins")
def test_the_recipe_reads_an_image_with_other_damage_each_time(script, tmp_path):
    module = script("noise")
    names = list(module.DetectorNoise.__dataclass_fields__)
    np.savez(tmp_path / "noise.npz", **{name: getattr(_noise(script), name) for name in names})
    captions = np.full((30, 5, 18), -1, np.int16)
    captions[:, :, :3] = [2, 3, 0]
    boxes = np.tile(np.array([800, 800, 2400, 1600], np.uint16), (240, 1))
    stored = {"ids": np.arange(30), "coco": captions, "boxes": boxes, "categories": np.full(240, 3, np.uint8)}
    np.savez(tmp_path / "captions.npz", box_starts=np.arange(0, 241, 8), **stored)
    Vocabulary(("<end>", "<unk>", "a", "car")).save(tmp_path / "vocabulary.txt")
    data = vars(load_plugin(SCRIPTS / "recipe.py"))["DamagedBoxesData"](folder=tmp_path, validation=4).open(print)
    assert (len(data.train), len(data.validation)) == (26, 4)
    assert data.train.references[0] == ("a car",) * 5
    rows = np.arange(4)
    first, again = (data.train.read(rows).features.sum().item() for _ in range(2))
    assert first != again
    kept, same = (data.validation.read(rows).features.sum().item() for _ in range(2))
    assert kept == same
