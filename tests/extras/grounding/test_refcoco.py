"""Expressions and their boxes are read from the field's files, and faults in them are named."""

import json
import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from legenda.errors import DataError
from legenda.extras.grounding.data import Expression, read_entities, read_refs


def sentence(number: int, words: str) -> dict[str, Any]:
    return {"sent_id": number, "raw": words, "sent": words, "tokens": words.split()}


REFS = [
    {
        "ref_id": 0,
        "ann_id": 5,
        "image_id": 9,
        "split": "train",
        "sentences": [sentence(1, "red dog"), sentence(2, "it")],
    },
    {"ref_id": 1, "ann_id": 6, "image_id": 9, "split": "testA", "sentences": [sentence(3, "left cat")]},
]
INSTANCES = {
    "images": [{"id": 9, "width": 640, "height": 480, "file_name": "COCO_train2014_000000000009.jpg"}],
    "annotations": [
        {"id": 5, "image_id": 9, "bbox": [10, 20, 30.5, 40]},
        {"id": 6, "image_id": 9, "bbox": [0, 0, 5, 6]},
    ],
}


def files(folder: Path, refs: object = REFS, instances: object = INSTANCES) -> tuple[Path, Path]:
    (folder / "refs(unc).p").write_bytes(pickle.dumps(refs, protocol=2))
    (folder / "instances.json").write_text(json.dumps(instances))
    return folder / "refs(unc).p", folder / "instances.json"


def test_every_sentence_is_an_expression_of_its_split(tmp_path):
    found = read_refs(*files(tmp_path))
    assert found["train"] == [
        Expression("1", "9", ("red", "dog"), ((10.0, 20.0, 40.5, 60.0),), (640.0, 480.0)),
        Expression("2", "9", ("it",), ((10.0, 20.0, 40.5, 60.0),), (640.0, 480.0)),
    ]
    assert found["testA"] == [Expression("3", "9", ("left", "cat"), ((0.0, 0.0, 5.0, 6.0),), (640.0, 480.0))]


def without(entry: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if name != key}


@pytest.mark.parametrize(
    ("refs", "problem"),
    [
        ([REFS[0], without(REFS[1], "ann_id")], r"\[1\] needs ann_id"),
        ([{**REFS[0], "sentences": [without(sentence(1, "a"), "tokens")]}], r"sentences\[0\] needs tokens"),
        ([{**REFS[0], "image_id": "9"}], "image_id must be a valid integer"),
        ([{**REFS[0], "ann_id": 7}], "names the image 9 and the box 7, one of which .*instances.json lacks"),
        ([REFS[0], REFS[0]], "has the sentence 1 twice"),
        ([Counter("a")], "cannot be read .it holds collections.Counter"),
    ],
)
def test_faults_in_refs_are_named(tmp_path, refs, problem):
    with pytest.raises(DataError, match=problem) as raised:
        read_refs(*files(tmp_path, refs=refs))
    assert "refs(unc).p" in str(raised.value)


CAPTION = {
    "text": "Two dogs ' chase a red , old ball .",
    "sentid": 4,
    "phrases": [[1, ["animals"], 0, 2], [2, ["x"], 2, 1]],
}
ENTRY = {"width": 300, "height": 200, "boxes": {"1": [[0, 0, 10, 10], [20, 5, 30, 40]], "2": [[1, 1, 2, 2]]}}


def entities(folder: Path, entry: object) -> tuple[Path, Path]:
    (folder / "phrases.json").write_text(json.dumps({"a.jpg": entry}))
    image = {"filename": "a.jpg", "split": "val", "sentences": []}
    (folder / "dataset.json").write_text(json.dumps({"images": [image]}))
    return folder / "phrases.json", folder / "dataset.json"


def test_phrases_by_hand(tmp_path):
    """A phrase without letters and one without boxes mean nothing."""
    phrases = [*CAPTION["phrases"], [3, ["other"], 4, 5], [1, ["animals"], 5, 4]]
    found = read_entities(*entities(tmp_path, {**ENTRY, "captions": [{**CAPTION, "phrases": phrases}]}))
    boxes = ((0.0, 0.0, 10.0, 10.0), (20.0, 5.0, 30.0, 40.0))
    assert found == {
        "val": [
            Expression("a-0-0", "a", ("two", "dogs"), boxes, (300.0, 200.0), "animals"),
            Expression("a-0-3", "a", ("red", "old", "ball"), boxes, (300.0, 200.0), "animals"),
        ]
    }
    assert found["val"][0].box == (0.0, 0.0, 30.0, 40.0)


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ({**without(ENTRY, "width"), "captions": [CAPTION]}, r"a\.jpg needs width"),
        ({**ENTRY, "boxes": {"1": [[3, 0, 3, 9]]}, "captions": [CAPTION]}, "the box .* is empty"),
        (ENTRY, "holds no phrases with boxes"),
    ],
)
def test_faults_in_phrases_are_named(tmp_path, entry, problem):
    with pytest.raises(DataError, match=rf"phrases\.json.*{problem}"):
        read_entities(*entities(tmp_path, entry))
