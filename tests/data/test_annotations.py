"""Annotations of every layout, their splits, and errors for damaged ones."""

import gzip
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from legenda.data.annotations import read_annotations
from legenda.errors import DataError

COCO = {
    "images": [{"id": n, "file_name": f"COCO_train2014_{n:012d}.jpg"} for n in (9, 25, 30, 34)],
    "annotations": [
        {"id": 100 * n + k, "image_id": n, "caption": f"caption {k} of {n}"} for n in (9, 25, 30) for k in range(2)
    ],
}


def write(path: Path, content) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    data = text.encode()
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    return path


def splits(path: Path, **options) -> dict[str, str]:
    return {image.id: image.split for image in read_annotations(path, **options)}


@pytest.mark.parametrize(("name", "split"), [("captions_train2014.json", "train"), ("captions_val2017.json.gz", "val")])
def test_cocos_captions_are_of_the_split_in_their_name(tmp_path, name, split):
    images = read_annotations(write(tmp_path / name, COCO))
    assert [image.id for image in images] == ["9", "25", "30", "34"]
    assert images[1].captions == ("caption 0 of 25", "caption 1 of 25")
    assert images[1].file == "COCO_train2014_000000000025.jpg"
    assert images[3].captions == ()
    assert {image.split for image in images} == {split}


def test_lists_of_ids_names_and_captions_say_the_splits(tmp_path):
    annotations = write(tmp_path / "captions_train2014.json", COCO)
    write(tmp_path / "a" / "karpathy_val_images.txt", "val2014/COCO_train2014_000000000025.jpg 25\n\n")
    write(tmp_path / "a" / "test.txt", "30\n")
    assert splits(annotations, lists=tmp_path / "a") == {"9": "train", "25": "val", "30": "test", "34": "train"}
    (tmp_path / "b").mkdir()
    np.save(tmp_path / "b" / "coco_train_ids.npy", np.array([900, 901]))  # ids of captions, as M2's lists have them
    np.save(tmp_path / "b" / "coco_restval_ids.npy", np.array([3000]))
    np.save(tmp_path / "b" / "coco_dev_ids.npy", np.array([2500, 2501]))
    assert splits(annotations, lists=tmp_path / "b") == {"9": "train", "25": "val", "30": "train"}
    apart = splits(annotations, lists=tmp_path / "b", restval="exclude")
    assert apart == {"9": "train", "25": "val", "30": "restval"}


def test_a_folder_of_cocos_captions_is_read_wholly(tmp_path):
    write(tmp_path / "captions_train2014.json", COCO)
    val = {"images": [{"id": 1, "file_name": "1.jpg"}], "annotations": [{"id": 1, "image_id": 1, "caption": "Katzen"}]}
    write(tmp_path / "captions_val2014.json", val)
    write(tmp_path / "instances_val2014.json", "{}")
    assert splits(tmp_path) == {"9": "train", "25": "train", "30": "train", "34": "train", "1": "val"}
    write(tmp_path / "captions_val2014.json", COCO)
    with pytest.raises(DataError, match="share the id '9'"):
        read_annotations(tmp_path)


def test_cocos_own_splits(shared):
    images = read_annotations(shared / "data/coco_captions", lists=shared / "data/coco_splits")
    assert Counter(image.split for image in images) == {"train": 113_287, "val": 5_000, "test": 5_000}
    assert sum(len(image.captions) for image in images) == 616_767


def test_karpathys_restval_is_joined_or_kept_apart(tmp_path):
    images = [
        {"filename": f"{s}.jpg", "split": s, "sentences": [{"raw": "A dog."}]} for s in ("train", "restval", "val")
    ]
    path = write(tmp_path / "dataset_coco.json", {"images": images})
    assert splits(path) == {"train": "train", "restval": "train", "val": "val"}
    assert splits(path, restval="exclude") == {"train": "train", "restval": "restval", "val": "val"}


TABLE = {
    "t.csv": 'file,caption,split\na/1.jpg,"A dog, wet.",train\n2.jpg,Hünd 🐕,val\na/1.jpg,Dogs.,train\n',
    "t.tsv": "image\tcaption\tsplit\na/1.jpg\tA dog, wet.\ttrain\n2.jpg\tHünd 🐕\tdev\na/1.jpg\tDogs.\ttrain\n",
    "t.jsonl": '{"file": "a/1.jpg", "caption": "A dog, wet."}\n\n'
    '{"file": "2.jpg", "caption": "Hünd 🐕", "split": "val"}\n{"file": "a/1.jpg", "caption": "Dogs."}\n',
    "bom.csv": '\ufefffile,caption,split\r\na/1.jpg,"A dog, wet.",\r\n2.jpg,Hünd 🐕,val\r\na/1.jpg,Dogs.,train\r\n',
    "bars.csv": "image_name| comment| split\na/1.jpg| A dog, wet.| train\n2.jpg| Hünd 🐕| val\na/1.jpg| Dogs.| train\n",
}


@pytest.mark.parametrize("name", TABLE)
@pytest.mark.parametrize("zipped", [False, True])
def test_tables_of_captions_are_read(tmp_path, name, zipped):
    first, second = read_annotations(write(tmp_path / (f"{name}.gz" if zipped else name), TABLE[name]))
    assert (first.id, first.file, first.captions, first.split) == (
        "1",
        "a/1.jpg",
        ("A dog, wet.", "Dogs."),
        "train",
    )
    assert (second.id, second.captions, second.split) == ("2", ("Hünd 🐕",), "val")


@pytest.mark.parametrize("odd", ["a\u2028b", "a\x85b", "\u200bdog\u200b", "e\u0301", "\U0001f436", "日本語"])
@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_captions_of_any_script_and_line_end_are_kept(tmp_path, kind, odd):
    line = json.dumps({"file": "1.jpg", "caption": odd}, ensure_ascii=False)
    content = f"{line}\n" if kind == "jsonl" else f"file,caption\n1.jpg,{odd}\n"
    (image,) = read_annotations(write(tmp_path / f"t.{kind}", content))
    assert image.captions == (odd,)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.csv", "file,words\n1.jpg,A dog.\n", "row 1 has no 'file' and 'caption' but 'file', 'words'"),
        ("t.csv", "file,caption\n1.jpg\n", "caption or split of row 1 is not text"),
        ("t.csv", "file,caption\n,A dog.\n", "row 1 names no file"),
        ("t.csv", "file,caption,split\n1.jpg,A dog.,training\n", "split of row 1 is none of train, "),
        (
            "t.csv",
            "file,caption,split\n1.jpg,A dog.,train\n1.jpg,Dogs.,val\n",
            "'1.jpg' is in two splits, train and val",
        ),
        ("t.csv", "file,caption\na/1.jpg,A dog.\nb/1.jpg,Dogs.\n", "'a/1.jpg' .* and 'b/1.jpg' .* share the id '1'"),
        ("t.jsonl", '{"file": "1.jpg"}\n', "line 1 has no 'file' and 'caption'"),
        ("t.jsonl", '{"file": "1.jpg", "caption": 3}\n', "caption or split of line 1 is not text"),
        ("t.jsonl", "[1]\n", "line 1 is not a JSON object"),
        ("t.jsonl", "\n{\n", "line 2 of .* is not valid JSON"),
        ("captions_val2014.json", {"images": [], "annotations": [{"id": 1, "image_id": 2, "caption": ""}]}, "image 2"),
        ("captions_val2014.json", {"images": [], "annotations": [{"id": 1, "image_id": 2}]}, r"annotations\[0\] lacks"),
        ("captions_val2014.json", {"images": [{"id": 1}], "annotations": []}, r"images\[0\] lacks"),
        (
            "captions_val2014.json",
            {"images": [{"id": True, "file_name": "a"}], "annotations": []},
            r"images\[0\] lacks",
        ),
        ("other.json", {"photos": []}, "images"),
        ("other.json", "{", "not valid JSON"),
        ("captions_val2014.json", {"annotations": 5}, "'annotations' of .* is of type int, not list"),
        ("captions_val2014.json", {"images": None, "annotations": []}, "'images' of .* is of type NoneType, not list"),
    ],
)
def test_what_is_broken_is_named(tmp_path, name, content, message):
    with pytest.raises(DataError, match=message) as error:
        read_annotations(write(tmp_path / name, content))
    assert name in str(error.value)


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        ({}, "holds no list of a split"),
        ({"images.txt": "9"}, "holds no list of a split"),
        ({"val.txt": "1234"}, "val.txt lists 1234, which is not in the annotations"),
        ({"val.txt": "9", "test.txt": "9"}, "val.txt lists image 9, which another list has in test"),
        ({"val.npy": "no array"}, "val.npy cannot be read"),
    ],
)
def test_lists_that_do_not_fit_are_named(tmp_path, lists, message):
    annotations = write(tmp_path / "captions_train2014.json", COCO)
    (tmp_path / "lists").mkdir()
    for name, text in lists.items():
        write(tmp_path / "lists" / name, text)
    with pytest.raises(DataError, match=message):
        read_annotations(annotations, lists=tmp_path / "lists")


def test_a_folder_without_captions_and_a_missing_file_are_named(tmp_path):
    with pytest.raises(DataError, match=r"holds no captions_\*\.json"):
        read_annotations(tmp_path)
    with pytest.raises(DataError, match=r"gone\.csv cannot be read"):
        read_annotations(tmp_path / "gone.csv")
