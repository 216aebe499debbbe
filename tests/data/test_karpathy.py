"""Karpathy's annotation layout, from small files written here and from the real ones."""

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from legenda.data import CaptionedImage, read_karpathy
from legenda.errors import DataError


def entry(**changes: Any) -> dict[str, Any]:
    sentences = [{"raw": "A dog runs.", "tokens": ["a", "dog", "runs"]}, {"raw": "The dog.", "tokens": ["the", "dog"]}]
    whole = {"filename": "12_ab.jpg", "imgid": 0, "split": "train", "sentences": sentences, **changes}
    return {key: value for key, value in whole.items() if value is not None}


def write(path: Path, *images: Any) -> Path:
    text = json.dumps({"images": images, "dataset": "tiny"})
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.mark.parametrize("name", ["dataset.json", "dataset.json.gz"])
def test_an_image_keeps_its_captions_verbatim_and_its_file_name_as_id(tmp_path, name):
    read = read_karpathy(write(tmp_path / name, entry()))
    assert read == [
        CaptionedImage(
            "12_ab", "12_ab.jpg", ("A dog runs.", "The dog."), "train", (("a", "dog", "runs"), ("the", "dog"))
        )
    ]


def test_a_coco_image_has_its_cocoid_as_id_and_its_folder_in_the_file(tmp_path):
    name = "COCO_val2014_000000000042.jpg"
    path = write(tmp_path / "dataset_coco.json", entry(filename=name, filepath="val2014", cocoid=42, split="val"))
    (image,) = read_karpathy(path)
    assert (image.id, image.file, image.split) == ("42", f"val2014/{name}", "val")


@pytest.mark.parametrize(("options", "expected"), [({}, "train"), ({"restval": "restval"}, "restval")])
def test_restval_is_train_by_default(tmp_path, options, expected):
    path = write(tmp_path / "d.json", entry(split="restval"), entry(filename="b.jpg", split="test"))
    assert [image.split for image in read_karpathy(path, **options)] == [expected, "test"]


def test_an_image_whose_captions_are_withheld_is_kept(tmp_path):
    (image,) = read_karpathy(write(tmp_path / "d.json", entry(sentences=[], split="test")))
    assert image.captions == ()


@pytest.mark.parametrize(
    ("images", "message"),
    [
        ([entry(filename=None)], r"images\[0\] has no 'filename'"),
        ([entry(), entry(filename="b.jpg", split=None)], r"images\[1\] has no 'split'"),
        ([entry(sentences=None)], r"images\[0\] has no 'sentences'"),
        ([entry(sentences=[{"raw": "A cat."}, {"tokens": ["a"]}])], r"images\[0\].sentences\[1\] has no 'raw'"),
        (
            [entry(sentences=[{"raw": "A cat.", "tokens": ["a", 7]}])],
            r"has tokens that are not all text",
        ),
        (
            [entry(sentences=[{"raw": "A cat.", "tokens": "a"}])],
            r"sentences.0. is of type str, not list",
        ),
        ([entry(sentences="A cat.")], "images.0. is of type str, not list"),
        ([entry(sentences=["A cat."])], r"sentences\[0\] has no 'raw'"),
        ([7], r"images\[0\] has no 'filename'"),
        ([entry(cocoid=True)], r"images\[0\] is of type bool"),
        ([entry(cocoid={})], r"images\[0\] is of type dict"),
        ([entry(), entry()], r"share the id '12_ab'"),
        ([entry(filename="a.jpg", cocoid=5), entry(filename="b.jpg", cocoid=5)], "'a.jpg'.*'b.jpg'.*share the id '5'"),
        ([entry(cocoid=1), entry(cocoid=2, split="val")], "split train.*split val.*share the file '12_ab.jpg'"),
        ([entry(), entry(filename="12_ab.png", split="val")], "split train.*split val.*share the id"),
    ],
)
def test_faults_are_named_with_the_file_and_the_key(tmp_path, images, message):
    path = write(tmp_path / "faulty.json", *images)
    with pytest.raises(DataError, match=rf"faulty\.json.*{message}"):
        read_karpathy(path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", b"{", "not valid JSON"),
        ("a.json", b"[]", "a JSON list, not an object"),
        ("a.json", b"{}", "has no 'images'"),
        ("a.json", b'{"images": {}}', "'images' of .*a.json is of type dict, not list"),
        ("a.json", b"\xff\xfe\x00", "not a UTF-8 text"),
        ("a.json.gz", b"{}", "cannot be read"),
        ("a.json.gz", gzip.compress(b'{"images": []}', mtime=0)[:-9], "cannot be read"),
    ],
)
def test_a_file_of_another_kind_is_refused_in_one_sentence(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message) as error:
        read_karpathy(tmp_path / name)
    assert name in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["absent.json", "absent.json.gz"])
def test_a_missing_file_is_named(tmp_path, name):
    with pytest.raises(DataError, match=name):
        read_karpathy(tmp_path / name)


def test_flickr8k_has_its_published_layout(shared):
    images = read_karpathy(shared / "data/flickr8k/dataset_flickr8k.json.gz")
    assert Counter(image.split for image in images) == {"train": 5999, "val": 1000, "test": 1000}
    assert all(len(image.captions) == (0 if image.split == "test" else 5) for image in images)
    assert images[0].id == "1000268201_693b08cb0e"


def test_coco_ids_are_numbers(shared):
    images = read_karpathy(shared / "data/coco_mini/dataset_coco_mini.json")
    assert len(images) == 531
    assert (images[0].id, images[0].file) == ("9", "images/000000000009.jpg")
