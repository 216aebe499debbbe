"""Captioned images and videos of every layout, their splits, and errors for damaged ones."""

import csv
import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from legenda.data import CaptionedImage, read_annotations
from legenda.data.captions import KarpathyData
from legenda.errors import DataError
from legenda.tasks.captioning import Captioning

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


@pytest.mark.parametrize(("entry", "image"), [("1", "1"), ("1.jpg", "2"), ("a/1.jpg", "2"), ("b/1.jpg", "3")])
def test_a_list_means_an_id_before_the_name_of_a_file(tmp_path, entry, image):
    """Annotations of one's own may number the images apart from their files."""
    images = [{"id": 1, "file_name": "2.jpg"}, {"id": 2, "file_name": "a/1.jpg"}]
    images += [] if "b" not in entry else [{"id": 3, "file_name": "b/1.jpg"}]
    annotations = write(tmp_path / "captions.json", {"images": images, "annotations": []})
    write(tmp_path / "lists" / "val.txt", entry)
    assert [i.id for i in read_annotations(annotations, lists=tmp_path / "lists") if i.split == "val"] == [image]


def test_a_path_that_does_not_exist_is_not_taken_for_an_image(tmp_path):
    """The names of a hundred thousand images would also take 13 s to compare."""
    for name in ("captions.jpg", "captoins.json"):
        write(tmp_path / name, "")
    with pytest.raises(DataError, match=r"captions.json does not exist; did you mean captoins.json\?"):
        read_annotations(tmp_path / "captions.json")
    (tmp_path / "captoins.json").unlink()
    with pytest.raises(DataError, match=r"captions.json does not exist; name a file in Karpathy's layout"):
        read_annotations(tmp_path / "captions.json")


def test_a_folder_of_cocos_captions_is_read_wholly(tmp_path):
    write(tmp_path / "captions_train2014.json", COCO)
    val = {"images": [{"id": 1, "file_name": "1.jpg"}], "annotations": [{"id": 1, "image_id": 1, "caption": "Katzen"}]}
    write(tmp_path / "captions_val2014.json", val)
    write(tmp_path / "instances_val2014.json", "{}")
    assert splits(tmp_path) == {"9": "train", "25": "train", "30": "train", "34": "train", "1": "val"}
    write(tmp_path / "captions_val2014.json", COCO)
    with pytest.raises(DataError, match="'9'"):
        read_annotations(tmp_path)


def test_karpathys_restval_is_joined_or_kept_apart(tmp_path):
    said = [{"raw": "A dog."}]
    images = [{"filename": f"{s}.jpg", "split": s, "sentences": said} for s in ("train", "restval", "val")]
    path = write(tmp_path / "dataset_coco.json", {"images": images})
    assert splits(path) == {"train": "train", "restval": "train", "val": "val"}
    assert splits(path, restval="exclude") == {"train": "train", "restval": "restval", "val": "val"}


TABLE = {
    "t.csv": 'file,caption,split\na/1.jpg,"A dog, wet.",train\n2.jpg,Hünd 🐕,val\na/1.jpg,Dogs.,train\n',
    "t.tsv": "image\tcaption\tsplit\na/1.jpg\tA dog, wet.\ttrain\n2.jpg\tHünd 🐕\tdev\na/1.jpg\tDogs.\ttrain\n",
    "t.jsonl": '{"file": "a/1.jpg", "caption": "A dog, wet.", "split": "train"}\n\n'
    '{"file": "2.jpg", "caption": "Hünd 🐕", "split": "val"}\n'
    '{"file": "a/1.jpg", "caption": "Dogs.", "split": "train"}\n',
    "bom.csv": '\ufefffile,caption,split\r\na/1.jpg,"A dog, wet.",train\r\n2.jpg,Hünd 🐕,val\r\na/1.jpg,Dogs.,train',
    "bars.csv": "image_name| comment| split\na/1.jpg| A dog, wet.| train\n2.jpg| Hünd 🐕| val\na/1.jpg| Dogs.| train\n",
}


@pytest.mark.parametrize("name", TABLE)
@pytest.mark.parametrize("zipped", [False, True])
def test_tables_of_captions_are_read(tmp_path, name, zipped):
    first, second = read_annotations(write(tmp_path / (f"{name}.gz" if zipped else name), TABLE[name]))
    assert (first.id, first.file, first.captions, first.split) == ("1", "a/1.jpg", ("A dog, wet.", "Dogs."), "train")
    assert (second.id, second.captions, second.split) == ("2", ("Hünd 🐕",), "val")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.csv", "file,words\n1.jpg,A dog.\n", "line 1 has no columns of files and captions but 'file', 'words'"),
        ("t.csv", "file,caption\n,A dog.\n", "line 2 names no file"),
        ("t.csv", "file,caption\n", "holds no captions"),
        ("t.csv", "file,caption\n.,A dog.\n", "line 2 names no file"),
        ("t.jsonl", '{"file": "/", "caption": "A dog."}', "line 1 names no file"),
        ("t.csv", "file,caption,split\n1.jpg,A dog.,mine\n", "the split 'mine' of line 2 is none of train, "),
        (
            "t.csv",
            "file,caption,split\n1.jpg,A dog.,train\n1.jpg,B,val\n",
            r"'1.jpg' is in two splits, train \(line 2\) and val \(line 3\)",
        ),
        ("t.csv", "file,caption\na/1.jpg,A dog.\nb/1.jpg,Dogs.\n", "'a/1.jpg' .* and 'b/1.jpg' .* share the id '1'"),
        ("t.jsonl", '{"file": "1.jpg", "caption": 3}\n', "'caption' of line 1 is of type int"),
        ("t.csv", "file,caption,split\n1.jpg,A dog.,\n2.jpg,B,val\n", "line 2 has no split, unlike line 3"),
        ("t.csv", "file,caption,split\n2.jpg,B,val\n1.jpg,A dog.\n", "line 3 has no split, unlike line 2"),
        ("t.tsv", "file\tcaption\tsplit\n2.jpg\tB\tval\n1.jpg\tA dog.\t \n", "line 3 has no split, unlike line 2"),
        (
            "t.jsonl",
            '{"file": "1.jpg", "caption": "A", "split": "val"}\n{"file": "2.jpg", "caption": "B", "split": null}',
            "line 2 has no split, unlike line 1",
        ),
        ("t.csv", "file,caption,caption\n1.jpg,A,B\n", "2 columns 'caption'"),
        ("t.csv", "file,caption,split,Split \n1.jpg,A,val,val\n", "2 columns 'split'"),
        ("t.csv", "file,image,caption\n1.jpg,2.jpg,A\n", "'file' and 'image', which mean the same"),
        ("t.jsonl", '{"file": "1.jpg", "caption": "A", "text": "B"}', "'caption' and 'text', which mean the same"),
        ("t.jsonl", '{"file": "1.jpg", "caption": "A", "caption": "B"}', "caption occurs twice"),
        ("t.csv", "file,caption\n1.jpg,A dog, which runs.\n", "line 2 has 3 columns, its heading 2"),
        ("t.csv", 'file,caption\n1.jpg, "A dog, which runs."\n', "line 2 has 3 columns, its heading 2"),
        (
            "captions_val.json",
            {"images": [{"id": 1}], "annotations": [{"id": 1, "image_id": 2, "caption": "A"}]},
            "captions of 2",
        ),
        ("captions_val.json", {"images": [{"id": True}], "annotations": []}, r"images\[0\]\.id must be"),
        ("other.json", {"photos": []}, "images"),
    ],
)
def test_what_is_broken_is_named(tmp_path, name, content, message):
    with pytest.raises(DataError, match=message) as error:
        read_annotations(write(tmp_path / name, content))
    assert name in str(error.value)


ROWS = ["file,caption,split", *(f"{n}.jpg,a dog number {n} runs,train" for n in range(1, 8))]


@pytest.mark.parametrize(
    ("slips", "line"),
    [
        ({3: '3.jpg,"a dog,train', 6: '6.jpg,"a dog",train'}, 4),
        ({3: '3.jpg,"a dog,train', 6: '6.jpg,a dog",train'}, 4),
        ({3: '3.jpg,"a dog,train', 4: '4.jpg,a dog",train'}, 4),
        ({3: '3.jpg,"a dog,train'}, 4),
        ({7: '7.jpg,"a dog,train'}, 8),
        ({2: '2.jpg,"a ""big" dog",train'}, 3),
        ({2: '2.jpg,"a \\"big\\" dog",train'}, 3),
        ({2: '2.jpg,"a dog""",train', 5: '"5.jpg,"a dog",train'}, 6),
        ({2: '2.jpg,"a dog\nruns","train', 5: '5.jpg,a dog,"train"'}, 4),
        ({0: '"file,caption,split'}, 1),
        ({2: '2.jpg,"",train', 3: '"3.jpg",""a dog"",train'}, 4),
    ],
)
@pytest.mark.parametrize("mark", [",", ";"])
def test_a_quotation_mark_that_swallows_rows_is_named_by_its_line(tmp_path, slips, line, mark):
    text = "\n".join(slips.get(number, row) for number, row in enumerate(ROWS)).replace(",", mark)
    with pytest.raises(DataError, match=rf"t\.csv.*line {line} "):
        read_annotations(write(tmp_path / "t.csv", text))


def test_quoted_captions_may_hold_marks_and_line_breaks(tmp_path):
    said = ["A dog,\nwhich runs, fast.", 'The "big" dog', "1, 2,\n3", '5" wide', ""]
    rows = [["file", "caption", "split", ""], *([f"{n}.jpg", text, "train"] for n, text in enumerate(said))]
    with (tmp_path / "t.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    assert [image.captions for image in read_annotations(tmp_path / "t.csv")] == [
        *((text,) for text in said if text),
        (),
    ]


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        ({}, "holds no list of a split"),
        ({"val.txt": "1234"}, "val.txt lists 1234, which is not in the annotations"),
        ({"val.txt": "9", "test.txt": "9"}, "val.txt lists image 9, which another list has in test"),
    ],
)
def test_lists_that_do_not_fit_are_named(tmp_path, lists, message):
    annotations = write(tmp_path / "captions_train2014.json", COCO)
    (tmp_path / "lists").mkdir()
    for name, text in lists.items():
        write(tmp_path / "lists" / name, text)
    with pytest.raises(DataError, match=message):
        read_annotations(annotations, lists=tmp_path / "lists")


def entry(**changes: Any) -> dict[str, Any]:
    sentences = [{"raw": "A dog runs.", "tokens": ["a", "dog", "runs"]}, {"raw": "The dog.", "tokens": ["the", "dog"]}]
    whole = {"filename": "12_ab.jpg", "imgid": 0, "split": "train", "sentences": sentences, **changes}
    return {key: value for key, value in whole.items() if value is not None}


def write_images(path: Path, *images: Any) -> Path:
    return write(path, {"images": images, "dataset": "tiny"})


@pytest.mark.parametrize("name", ["dataset.json", "dataset.json.gz"])
def test_an_image_keeps_its_captions_verbatim_and_its_file_name_as_id(tmp_path, name):
    read = read_annotations(write_images(tmp_path / name, entry()))
    assert read == [
        CaptionedImage(
            "12_ab", "12_ab.jpg", ("A dog runs.", "The dog."), "train", (("a", "dog", "runs"), ("the", "dog"))
        )
    ]


def test_a_coco_image_has_its_cocoid_as_id_and_its_folder_in_the_file(tmp_path):
    name = "COCO_val2014_000000000042.jpg"
    image = entry(filename=name, filepath="val2014", cocoid=42, split="val")
    path = write_images(tmp_path / "dataset_coco.json", image)
    (image,) = read_annotations(path)
    assert (image.id, image.file, image.split) == ("42", f"val2014/{name}", "val")


@pytest.mark.parametrize(
    ("images", "message"),
    [
        ([entry(filename=None)], r"images\[0\] needs filename"),
        ([entry(sentences=None)], r"images\[0\] needs sentences"),
        ([entry(sentences=[{"raw": "A cat.", "tokens": ["a", 7]}])], r"tokens\[1\] must be a valid string"),
        ([7], r"images\[0\] must be"),
        ([entry(cocoid=True)], r"images\[0\]\.cocoid must be"),
        ([entry(), entry()], r"share the id '12_ab'"),
        ([entry(filename="a.jpg", cocoid=5), entry(filename="b.jpg", cocoid=5)], "'a.jpg'.*'b.jpg'.*share the id '5'"),
        ([entry(cocoid=1), entry(cocoid=2, split="val")], "split train.*split val.*share the file '12_ab.jpg'"),
    ],
)
def test_faults_of_karpathys_layout_are_named_with_the_file_and_the_key(tmp_path, images, message):
    path = write_images(tmp_path / "faulty.json", *images)
    with pytest.raises(DataError, match=rf"faulty\.json.*{message}"):
        read_annotations(path)


def test_flickr8k_has_its_published_layout(shared):
    images = read_annotations(shared / "data/flickr8k/dataset_flickr8k.json.gz")
    assert Counter(image.split for image in images) == {"train": 5999, "val": 1000, "test": 1000}
    assert all(len(image.captions) == (0 if image.split == "test" else 5) for image in images)
    assert images[0].id == "1000268201_693b08cb0e"


VATEX = [{"videoID": "-ab_000001_000011", "enCap": ["A man runs.", "He runs."], "chCap": ["x"]}]
MSRVTT = {
    "info": {},
    "videos": [
        {"id": 0, "video_id": "video0", "category": 1, "split": "train"},
        {"id": 1, "video_id": "video1", "category": 2, "split": "validate"},
    ],
    "sentences": [
        {"sen_id": 0, "video_id": "video0", "caption": "a man sings"},
        {"sen_id": 1, "video_id": "video1", "caption": "a dog barks"},
        {"sen_id": 2, "video_id": "video0", "caption": "someone is singing"},
    ],
}


def written(folder: Path, **files: object) -> Path:
    for name, content in files.items():
        write(folder / f"{name}.json", content)
    return folder


def read_videos(path: Path) -> dict[str, tuple[str, tuple[str, ...]]]:
    return {image.id: (image.split, image.captions) for image in read_annotations(path)}


def test_a_folder_of_vatex_has_its_splits_in_the_names(tmp_path):
    rest = [[{"videoID": name, "enCap": [name]}] for name in ("b", "c")]
    written(tmp_path, vatex_training_v1=VATEX, vatex_validation_v1=rest[0], vatex_public_test_v1=rest[1])
    assert read_videos(tmp_path) == {
        "-ab_000001_000011": ("train", ("A man runs.", "He runs.")),
        "b": ("val", ("b",)),
        "c": ("test", ("c",)),
    }


def test_msrvtt_in_one_file_or_two(tmp_path):
    test = {"videos": [{"video_id": "video2", "split": "test"}], "sentences": []}
    folder = written(tmp_path, train_val_videodatainfo=MSRVTT, test_videodatainfo=test)
    both = {"video0": ("train", ("a man sings", "someone is singing")), "video1": ("val", ("a dog barks",))}
    assert read_videos(tmp_path / "train_val_videodatainfo.json") == both
    assert read_videos(folder) == {"video2": ("test", ()), **both}


def test_videos_are_data_like_images(tmp_path):
    """Frames as VATEX's I3D files have them, (1, T, D), of different lengths."""
    written(tmp_path, train_val_videodatainfo=MSRVTT)
    frames = tmp_path / "frames"
    frames.mkdir()
    for name, length in (("video0", 3), ("video1", 2)):
        np.save(frames / f"{name}.npy", np.arange(length * 4, dtype=np.float32).reshape(1, length, 4))
    annotations = tmp_path / "train_val_videodatainfo.json"
    data = KarpathyData(annotations=annotations, features=frames, min_count=1, max_length=39)
    opened = data.open(lambda _: None)
    assert opened.feature_dim == 4
    assert Captioning(opened).create("transformer", {"dim": 16, "num_heads": 2}).generation_config.max_length == 39
    regions = opened.train.read(np.array([0]))
    assert regions.features[0].tolist() == np.arange(12.0).reshape(3, 4).tolist()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([{"videoID": "a"}, "b"], r"entry\[1\] must be"),
        ({**MSRVTT, "videos": MSRVTT["videos"][:1]}, "has captions of video1, which is not among its images"),
        ({**MSRVTT, "videos": [{"video_id": "video0", "split": "mine"}]}, r"videos\[0\] is of the split 'mine'"),
        ({**MSRVTT, "videos": [{"video_id": {}, "split": "train"}]}, r"videos\[0\]\.video_id must be"),
        ([*VATEX, *VATEX], "000011"),
        ([{"videoID": "a", "enCap": "text"}], r"\[0\]\.enCap must be"),
    ],
)
def test_what_is_broken_in_videos_is_named(tmp_path, content, message):
    with pytest.raises(DataError, match=message):
        read_annotations(written(tmp_path, vatex_training=content) / "vatex_training.json")
