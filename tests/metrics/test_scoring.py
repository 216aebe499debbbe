"""Files of predictions and references in every layout, and the errors for invalid ones."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from legenda.errors import LegendaError
from legenda.metrics.scoring import read_predictions, read_references

KARPATHY = {
    "images": [
        {"filename": "a.jpg", "cocoid": 5, "split": "test", "sentences": [{"raw": "A dog."}, {"raw": "Dogs."}]},
        {"filename": "b.jpg", "split": "restval", "sentences": [{"raw": "A cat."}]},
        {"filename": "c.jpg", "split": "test", "sentences": []},
    ]
}
COCO = {
    "images": [{"id": 7, "file_name": "a.jpg"}, {"id": 8, "file_name": "b.jpg"}],
    "annotations": [
        {"image_id": 8, "id": 1, "caption": "A dog."},
        {"image_id": 7, "id": 2, "caption": "A cat."},
        {"image_id": 8, "id": 3, "caption": "Dogs."},
    ],
}


@pytest.fixture
def file(tmp_path) -> Callable[[Any], Path]:
    """Return a function that writes JSON, or text unchanged."""

    def write(content: Any) -> Path:
        path = tmp_path / "some.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return path

    return write


@pytest.mark.parametrize(
    ("content", "captions"),
    [
        ([{"image_id": 7, "caption": "A dog."}, {"image_id": "x", "caption": ""}], {"7": ["A dog."], "x": [""]}),
        ({"7": "A dog.", "x": ""}, {"7": ["A dog."], "x": [""]}),
        ({"7": ["A dog.", "Dogs."]}, {"7": ["A dog.", "Dogs."]}),
        ({"split": "val", "scores": {"BLEU-1": 0.5}, "captions": {"a": "A dog."}}, {"a": ["A dog."]}),
        ({"captions": "A dog."}, {"captions": ["A dog."]}),
        ("[new] a.jpg: a dog\n{b}.png: a cat", {"[new] a.jpg": ["a dog"], "{b}.png": ["a cat"]}),
        ("{b}.png: a cat", {"{b}.png": ["a cat"]}),
        ('{"7": "a.jpg: A dog."}', {"7": ["a.jpg: A dog."]}),
    ],
)
def test_predictions(file, content, captions):
    assert read_predictions(file(content)) == captions


@pytest.mark.parametrize(
    ("content", "split", "captions"),
    [
        (COCO, None, {"8": ["A dog.", "Dogs."], "7": ["A cat."]}),
        (KARPATHY, None, {"5": ["A dog.", "Dogs."], "b": ["A cat."]}),
        (KARPATHY, "test", {"5": ["A dog.", "Dogs."]}),
        (KARPATHY, "train", {"b": ["A cat."]}),
        ({"a": ["A dog.", "Dogs."], "b": "A cat."}, None, {"a": ["A dog.", "Dogs."], "b": ["A cat."]}),
    ],
)
def test_references(file, content, split, captions):
    assert read_references(file(content), split=split) == captions


def test_the_files_of_a_folder_say_the_split_of_their_images(tmp_path):
    for split, image in (("train", 7), ("val", 8)):
        part = {name: [e for e in COCO[name] if image in e.values()] for name in COCO}
        (tmp_path / f"captions_{split}2014.json").write_text(json.dumps(part))
    assert read_references(tmp_path, split="val") == {"8": ["A dog.", "Dogs."]}
    (tmp_path / "captions_more.json").write_text(json.dumps({**COCO, "images": [], "annotations": []}))
    with pytest.raises(LegendaError, match="does not say which images are of the split val"):
        read_references(tmp_path, split="val")


def test_the_real_annotations(shared):
    references = read_references(shared / "data/coco_captions/captions_val2014.json.gz")
    assert len(references) == 40_504
    assert sum(map(len, references.values())) == 202_654


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[", "is not valid JSON"),
        ("3", "no columns of files and captions but '3'"),
        ("{}", "holds no captions"),
        ('{"a": "x", "b": "y", "a": "z"}', r"cannot be read \(a occurs twice\)"),
        (
            [{"image_id": 1, "caption": "a"}, {"image_id": 1, "caption": "b"}],
            "more than one caption for image 1; leave",
        ),
        ([{"image_id": 1}], "entry 0 has no columns of files and captions but 'image_id'"),
        ([{"image_id": True, "caption": "a"}], "'image_id' of entry 0 is of type bool"),
        ([{"image_id": 1, "caption": None}], "'caption' of entry 0 is missing"),
        ({"a": []}, "no caption for image a"),
        ([{"image_id": 1, "caption": "a"}, {"image_id": 2, "caption": []}], "no caption for image 2"),
    ],
)
def test_invalid_predictions_are_named(file, content, message):
    path = file(content)
    with pytest.raises(LegendaError, match=message) as caught:
        read_predictions(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("content", "split", "message"),
    [
        ([1], None, r"\[0\] must be"),
        ({"images": [{"id": 1}], "annotations": []}, None, "holds no references"),
        (COCO, "val", "does not say which images are of the split val"),
        (KARPATHY, "val", "holds no references for the split val"),
        ({"images": [{"id": 1}]}, None, r"images\[0\] needs filename"),
    ],
)
def test_invalid_references_are_named(file, content, split, message):
    path = file(content)
    with pytest.raises(LegendaError, match=message) as caught:
        read_references(path, split=split)
    assert str(path) in str(caught.value)


def test_repeated_keys_take_linear_time(tmp_path):
    path = tmp_path / "captions.json"
    path.write_text("{" + ",".join(f'"{i:06d}": "a"' for i in range(200_000)) + ',"199999": "b"}')
    started = time.process_time()
    with pytest.raises(LegendaError, match="199999"):
        read_predictions(path)
    assert time.process_time() - started < 10  # quadratic time is minutes
