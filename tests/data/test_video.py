"""VATEX's and MSR-VTT's files are read as captioned images."""

import json
from pathlib import Path

import numpy as np
import pytest

from legenda.data.annotations import read_annotations
from legenda.data.captions import KarpathyData
from legenda.errors import DataError

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
        (folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


def read_videos(path: Path) -> dict[str, tuple[str, tuple[str, ...]]]:
    return {image.id: (image.split, image.captions) for image in read_annotations(path)}


def test_a_folder_of_vatex_has_its_splits_in_the_names(tmp_path):
    rest = [[{"videoID": name, "enCap": [name]}] for name in ("b", "c")]
    folder = written(
        tmp_path, **{"vatex_training_v1": VATEX, "vatex_validation_v1": rest[0], "vatex_public_test_v1": rest[1]}
    )
    assert read_videos(folder) == {
        "-ab_000001_000011": ("train", ("A man runs.", "He runs.")),
        "b": ("val", ("b",)),
        "c": ("test", ("c",)),
    }


def test_msrvtt_in_one_file_or_two(tmp_path):
    test = {"videos": [{"video_id": "video2", "split": "test"}], "sentences": []}
    folder = written(tmp_path, train_val_videodatainfo=MSRVTT, test_videodatainfo=test)
    both = {
        "video0": ("train", ("a man sings", "someone is singing")),
        "video1": ("val", ("a dog barks",)),
    }
    assert read_videos(tmp_path / "train_val_videodatainfo.json") == both
    assert read_videos(folder) == {"video2": ("test", ()), **both}


def test_videos_are_data_like_images(tmp_path):
    """Frames as VATEX's I3D files have them, (1, T, D), of different lengths."""
    written(tmp_path, train_val_videodatainfo=MSRVTT)
    frames = tmp_path / "frames"
    frames.mkdir()
    for name, length in (("video0", 3), ("video1", 2)):
        np.save(frames / f"{name}.npy", np.arange(length * 4, dtype=np.float32).reshape(1, length, 4))
    data = KarpathyData(annotations=tmp_path / "train_val_videodatainfo.json", features=frames, min_count=1)
    opened = data.open(lambda _: None)
    assert opened.feature_dim == 4
    regions = opened.train.read(np.array([0]))
    assert regions.features[0].tolist() == np.arange(12.0).reshape(3, 4).tolist()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([{"videoID": "a", "enCap": [3]}], "entry 0 lacks videoID, or its enCap are no texts"),
        ([{"videoID": "a"}, "b"], "entry 1 lacks videoID"),
        ({**MSRVTT, "videos": MSRVTT["videos"][:1]}, "has captions of video1, which is not among its 'videos'"),
        (
            {**MSRVTT, "videos": [{"video_id": "video0", "split": "dev"}]},
            r"videos\[0\] lacks video_id, or its split is",
        ),
        ({**MSRVTT, "sentences": [{"video_id": "video0"}]}, r"sentences\[0\] lacks video_id or a text as caption"),
        ({**MSRVTT, "videos": [{"video_id": {}, "split": "train"}]}, r"videos\[0\] lacks video_id"),
        ({**MSRVTT, "sentences": [{"video_id": {}, "caption": "a"}]}, r"sentences\[0\] lacks video_id"),
        ([*VATEX, *VATEX], "000011"),
        ([{"videoID": "a", "enCap": "text"}], "entry 0 lacks videoID, or its enCap are no texts"),
        ({**MSRVTT, "sentences": 5}, "'sentences' of .* is of type int, not list"),
        ({**MSRVTT, "videos": {"a": 1}}, "'videos' of .* is of type dict, not list"),
    ],
)
def test_what_is_broken_is_named(tmp_path, content, message):
    with pytest.raises(DataError, match=message):
        read_annotations(written(tmp_path, vatex_training=content) / "vatex_training.json")
