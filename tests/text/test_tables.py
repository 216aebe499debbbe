"""Captions in the forms that people have them: read by content, as annotations; what is broken is named by its line."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from legenda.data import read_annotations
from legenda.data.captions import KarpathyData
from legenda.errors import DataError
from legenda.text.tables import Columns

SAID = {"0": ("A dog, wet.", "Dogs."), "1": ("A cat.",)}


def lines(*rows: str) -> str:
    return "".join(f"{row}\n" for row in rows)


def json_lines(*entries: Any) -> str:
    return lines(*map(json.dumps, entries))


FORMS = {
    "captions.txt": lines("image,caption", '0.jpg,"A dog, wet."', "0.jpg,Dogs.", "1.jpg,A cat."),
    "Flickr8k.token.txt": lines("0.jpg#0\tA dog, wet.", "0.jpg#1\tDogs.", "1.jpg#0\tA cat."),
    "results.csv": lines(
        "image_name| comment_number| comment", "0.jpg| 0| A dog, wet.", "0.jpg| 1   Dogs.", "1.jpg|0|A cat."
    ),
    "list.json": json.dumps([{"image": "a/0.jpg", "caption": SAID["0"]}, {"image": "1.jpg", "caption": ["A cat."]}]),
    "object.json": json.dumps({"0": SAID["0"], "1": "A cat."}),
    "data.json": json.dumps({"n": 2, "data": [{"image_id": n, "reference_strs": said} for n, said in SAID.items()]}),
    "lists.jsonl": json_lines({"file": "0.jpg", "captions": SAID["0"]}, {"file": "1.jpg", "captions": ["A cat."]}),
    "metadata.json1": json_lines({"file_name": "0.jpg", "text": SAID["0"]}, {"file_name": "1.jpg", "text": "A cat."}),
    "objects.ndjson": json_lines(
        *({"img": f"{n}.png", "sentences": [{"raw": s} for s in said]} for n, said in SAID.items())
    ),
    "wide.csv": lines("filename;caption_1;caption_2", '0.jpg;"A dog, wet.";Dogs.', "1.jpg;A cat.;"),
    "cells.csv": lines("raw,filename", '"[""A dog, wet."", ""Dogs.""]",0.jpg', "\"['A cat.']\",1.jpg"),
    "quoted.tsv": lines('"Image Path"\t"Caption"', '"0.jpg"\t"A dog, wet."', "0.jpg\tDogs.", "1.jpg\tA cat."),
    "windows.csv": lines(
        "\ufeffimagePath,prompt\r", 'C:\\mine\\0.jpg,"A dog, wet."\r', "C:\\mine\\0.jpg,Dogs.\r", "1.jpg,A cat.\r"
    ),
    "bare.csv": lines('0.JPG,"A dog, wet."', "0.JPG,Dogs.", "1.jpg,A cat."),
    "printed.txt": lines("mine/0.jpg: A dog, wet.", "mine/0.jpg: Dogs.", "1.jpg: A cat."),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_tables_are_known_by_their_content(tmp_path, name):
    for path in (tmp_path / name, tmp_path / "other.dat"):
        path.write_text(FORMS[name], encoding="utf-8", newline="")
        assert {image.id: image.captions for image in read_annotations(path)} == SAID


def folder_of(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


FOLDERS = {
    "text": {
        "0.jpg": "", "0.txt": "A dog, wet.\n\nDogs.\n", "1.PNG": "", "1.txt": "A cat.", "README.txt": "x", "2.jpg": "",
    },
    "sidecars": {
        "0.jpg": "", "0.caption": "A dog, wet.\nDogs.", "1.jpg": "", "1.json": '{"caption": "A cat."}', "x.json": "{}",
    },
    "metadata": {"metadata.jsonl": FORMS["lists.jsonl"], "0.jpg": "", "1.jpg": ""},
    "nested": {
        "train/0.jpg": "", "train/0.txt": "A dog, wet.\nDogs.", "val/x/1.jpg": "", "val/x/1.txt": "A cat.",
    },
    "splits": {
        "train.csv": lines("file,caption", '0.jpg,"A dog, wet."', "0.jpg,Dogs."), "Validation.tsv": "1.jpg\tA cat.",
    },
    "hub": {
        "train/metadata.csv": lines("file_name,text", '0.jpg,"A dog, wet."', "0.jpg,Dogs."),
        "validation/metadata.csv": lines("file_name,text", "1.jpg,A cat."),
    },
    "json": {
        "captions_train.json": '[{"file": "0.jpg", "caption": ["A dog, wet.", "Dogs."]}]',
        "captions_val.json": '{"1": "A cat."}',
    },
    "one": {"captions.txt": "", "mine.csv": FORMS["captions.txt"]},
}  # fmt: skip


@pytest.mark.parametrize("name", FOLDERS)
def test_folders_are_tables(tmp_path, name):
    images = read_annotations(folder_of(tmp_path / "mine", FOLDERS[name]))
    assert {image.id: image.captions for image in images} == SAID
    by_folder = (
        {"0": "train", "1": "val"} if name in ("nested", "splits", "hub", "json") else {"0": "train", "1": "train"}
    )
    assert {image.id: image.split for image in images} == by_folder


def test_metadata_of_other_programs_is_no_table_and_no_list(tmp_path):
    """A Mac leaves a file ._a.csv beside a.csv on disks of other systems and in archives."""
    (tmp_path / "lists").mkdir()
    (tmp_path / "captions.csv").write_text("file,caption\na.jpg,a dog\nb.jpg,a cat\n")
    (tmp_path / "lists" / "train.txt").write_text("a.jpg\n")
    (tmp_path / "lists" / "val.txt").write_text("b.jpg\n")
    for name in ("captions.csv", "lists/train.txt"):
        path = tmp_path / name
        path.with_name(f"._{path.name}").write_bytes(b"\x00\x05\x16\x07Mac OS X")
    images = read_annotations(tmp_path, lists=tmp_path / "lists")
    assert [(image.id, image.split) for image in images] == [("a", "train"), ("b", "val")]


def test_files_of_a_folder_are_below_it(tmp_path):
    images = read_annotations(folder_of(tmp_path / "mine", FOLDERS["hub"]))
    assert [image.file for image in images] == ["train/0.jpg", "validation/1.jpg"]


@pytest.mark.parametrize(
    ("ours", "words"),
    [
        ("train", ["Train", "TRAIN ", "training", "train2017"]),
        ("val", ["validation", "VALID", "Val", "dev", "eval"]),
        ("test", ["TEST", "testing"]),
    ],
)
def test_splits_are_spelled_as_people_do(tmp_path, ours, words):
    rows = [f"{number}.jpg,A dog.,{word}" for number, word in enumerate(words)]
    (tmp_path / "t.csv").write_text(lines("file,caption,Split", *rows))
    assert {image.split for image in read_annotations(tmp_path / "t.csv")} == {ours}
    entries = [{"filename": f"{n}.jpg", "split": word, "sentences": [{"raw": "A"}]} for n, word in enumerate(words)]
    (tmp_path / "karpathy.json").write_text(json.dumps({"images": entries}))
    assert {image.split for image in read_annotations(tmp_path / "karpathy.json")} == {ours}


@pytest.mark.parametrize("text", ["a.jpg?" * 12_000, ",".join(f"column{n}" for n in range(15_000)), "a" * 200_000])
def test_a_long_first_line_is_refused_in_linear_time(tmp_path, text):
    (tmp_path / "t.txt").write_text(text)
    start = time.process_time()
    with pytest.raises(DataError, match=r"t.txt: (line 1 has no columns|a quotation mark in line 1 or a value)"):
        read_annotations(tmp_path / "t.txt")
    assert time.process_time() - start < 3


def test_columns_have_any_name(tmp_path):
    (tmp_path / "t.csv").write_text(lines("id,Bild,Text (de),caption,Teil", "7,0.jpg,Ein Hund.,A dog.,Test"))
    columns = Columns(file="Bild", caption="text (de)", split="Teil")
    (image,) = read_annotations(tmp_path / "t.csv", columns=columns)
    assert (image.file, image.captions, image.split) == ("0.jpg", ("Ein Hund.",), "test")
    with pytest.raises(DataError, match=r"'Tekst \(de\)'"):
        read_annotations(tmp_path / "t.csv", columns=Columns(file="Bild", caption="Tekst (de)"))
    data = KarpathyData(annotations=tmp_path / "t.csv", features=tmp_path, file_column="Bild", caption_column="caption")
    assert data.read_images()[0].captions == ("A dog.",)


def test_empty_captions_are_counted_and_left_out(tmp_path, caplog):
    contents = {
        "t.csv": lines("file,caption", "0.jpg,A dog.", "3.jpg,", "0.jpg,  ", "1.jpg,A cat."),
        "l.jsonl": json_lines({"file": "0.jpg", "captions": ["A dog.", ""]}, {"file": "1.jpg", "caption": "A cat."}),
        "o.json": json.dumps({"0": ["A dog.", " "], "1": ["A cat."], "3": [""]}),
        "captions_val.json": json.dumps(
            {
                "images": [{"id": n} for n in (0, 1, 3)],
                "annotations": [{"id": n, "image_id": n % 4, "caption": c} for n, c in enumerate(["A dog.", "A cat."])]
                + [{"id": 4, "image_id": 0, "caption": ""}, {"id": 5, "image_id": 3, "caption": "\n"}],
            }
        ),
    }  # fmt: skip
    for name, text in contents.items():
        caplog.clear()
        (tmp_path / name).write_text(text)
        said = {image.id: image.captions for image in read_annotations(tmp_path / name) if image.captions}
        assert said == {"0": ("A dog.",), "1": ("A cat.",)}, name
        (message,) = caplog.messages
        assert "left out" in message
        assert name in message
    assert "first in line 3" in caplog.text or "first in image" in caplog.text


def write_bytes(folder: Path, name: str, content: bytes) -> Path:
    (folder / name).write_bytes(content)
    return folder / name


@pytest.mark.parametrize("name", ["t.csv", "Flickr8k.token.txt", "results.csv", "lists.jsonl", "metadata.json1"])
def test_encodings_are_read_or_named_by_the_line(tmp_path, name):
    text = FORMS["captions.txt" if name == "t.csv" else name]
    for encoding in ("utf-8-sig", "utf-16"):
        path = write_bytes(tmp_path, name, text.replace("\n", "\r\n").encode(encoding))
        assert {image.id: image.captions for image in read_annotations(path)} == SAID
    last = text.rstrip("\n").count("\n") + 1
    path = write_bytes(tmp_path, name, text.rstrip("\n").encode() + "é".encode("latin-1"))
    with pytest.raises(DataError, match=rf"{name} .*line {last}"):
        read_annotations(path)


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("token.txt", lines("0.jpg#0\tA dog.", "1.jpg#0"), "line 2"),
        ("token.txt", lines("0.jpg#0\tA dog.", "\tA cat."), "line 2"),
        ("captions.txt", lines("image,caption", "0.jpg,A dog.", "1.jpg"), "line 3"),
        ("captions.txt", lines("image,words", "0.jpg,A dog."), "line 1"),
        ("captions.txt", lines("image,caption", "0.jpg,A dog, wet."), "line 2"),
        ("results.csv", lines("image_name| comment", "0.jpg| A dog.", "1.jpg"), "line 3"),
        ("t.tsv", lines("image\tcaption", "0.jpg\tA\tdog"), "line 2"),
        ("l.jsonl", json_lines({"file": "0.jpg", "captions": ["A"]}, {"file": "1.jpg"}), "line 2"),
        ("l.jsonl", json_lines({"file": "0.jpg", "captions": ["A"]}, {"file": "1.jpg", "captions": [None]}), "line 2"),
        ("l.jsonl", json_lines({"file": "0.jpg", "captions": ["A"]}, [1]), "line 2"),
        ("l.jsonl", json_lines({"file": "0.jpg", "captions": ["A"]}) + "{", "line 2"),
        ("l.json", json.dumps([{"file": "0.jpg", "caption": "A"}, {"file": ["0"], "caption": "B"}]), "entry 1"),
        ("printed.txt", lines("0.jpg: A dog.", "a cat"), "line 2"),
        ("clash.csv", lines("image,caption", "a/0.jpg,A", "b/0.jpg,B"), "line 2.*line 3"),
        ("clash.txt", lines("0.jpg#0\tA", "0.png#0\tB"), "line 1.*line 2"),
        ("two.jsonl", json_lines({"image": "0.jpg", "path": "", "caption": ""}, {}), "'image' and 'path'"),
    ],
)  # fmt: skip
def test_slips_are_named_by_file_and_line(tmp_path, name, text, line):
    with pytest.raises(DataError, match=rf"{name}.*{line}"):
        read_annotations(write_bytes(tmp_path, name, text.encode()))


def test_a_file_that_does_not_exist_has_its_neighbor_named(tmp_path):
    (tmp_path / "metadata.jsonl").write_text(FORMS["lists.jsonl"])
    with pytest.raises(DataError, match=r"metadata\.json1.*metadata\.jsonl"):
        read_annotations(tmp_path / "metadata.json1")


def test_folders_with_nothing_to_read_are_named(tmp_path):
    for files, message in (
        ({"0.jpg": ""}, "no text beside images"),
        ({"a.csv": FORMS["captions.txt"], "b.csv": ""}, "a.csv, b.csv"),
        ({"a/0.jpg": "", "a/0.txt": "A", "b/0.jpg": "", "b/0.txt": "B"}, "a/0.jpg.*b/0.jpg.*share the id '0'"),
    ):
        folder = folder_of(tmp_path / message[:4].strip("/."), files)
        with pytest.raises(DataError, match=message):
            read_annotations(folder)
