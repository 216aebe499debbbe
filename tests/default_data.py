"""Tiny data of every kind, in files of the names that recipes have by default."""

import gzip
import json
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from legenda.features.packed import write_store

IMAGES = range(8)
"""Split of each image: six for training, one for validation, one for tests."""
SPLITS = ("train",) * 6 + ("val", "test")
CAPTIONS = (
    ("a dog runs on the beach", "the brown dog plays on a beach", "a dog on the beach"),
    ("a cat sleeps on the bed", "the gray cat lies on a bed", "a cat on the bed"),
)
"""Captions of images with even and with odd numbers; if all were the same, CIDEr-D would be 0."""
WIDTH = 12
"""Width of the features."""


def write_default_data(folder: Path) -> None:
    """Write the files that recipes name, relative to the folder."""
    _write_coco(folder)
    _write_videos(folder)
    _write_photographs(folder)
    write_questions(folder / "vqa2")
    write_daquar(folder)
    for name, by in (("refcoco", "unc"), ("refcoco+", "unc"), ("refcocog", "umd")):
        write_expressions(folder / name, by)
    write_entities(folder)
    write_translations(folder)


def write_features(path: Path, names: Sequence[str], *, boxes: bool = True) -> None:
    """Write random features of these images in the packed format."""
    rng = np.random.default_rng(0)
    corners = rng.uniform(0, 0.5, (len(names), 4, 2))
    corners = np.concatenate([corners, corners + 0.3], axis=-1)
    corners[:, 0] = 0.1, 0.1, 0.6, 0.6  # what expressions and phrases refer to
    features = rng.standard_normal((len(names), 4, WIDTH)).astype(np.float32)
    images = ((name, features[n], corners[n] if boxes else None) for n, name in enumerate(names))
    write_store(path, images, extractor="a test")


def _write(path: Path, content: object) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content))


def _write_coco(folder: Path) -> None:
    sentences = [[{"raw": f"{text}.", "tokens": text.split()} for text in texts] for texts in CAPTIONS]
    entries = [
        {"filename": f"{n:012d}.jpg", "cocoid": n, "split": split, "sentences": sentences[n % 2]}
        for n, split in zip(IMAGES, SPLITS, strict=True)
    ]
    _write(folder / "dataset_coco.json", {"images": entries})
    for name in ("coco", "coco_grid", "coco_grid152", "coco_senet154"):
        write_features(folder / f"{name}.safetensors", list(map(str, IMAGES)))
    for entry in entries:
        del entry["cocoid"]
    (folder / "dataset_flickr8k.json.gz").write_bytes(gzip.compress(json.dumps({"images": entries}).encode()))
    write_features(folder / "flickr8k.safetensors", [f"{n:012d}" for n in IMAGES])


def _write_videos(folder: Path) -> None:
    names = [f"video{n}" for n in IMAGES]
    for part, split in (("training", "train"), ("validation", "val")):
        videos = [{"videoID": names[n], "enCap": [*CAPTIONS[n % 2]]} for n in IMAGES if SPLITS[n] == split]
        _write(folder / "vatex" / f"vatex_{part}_v1.json", videos)
    splits = {"train": "train", "val": "validate", "test": "test"}
    videos = [{"video_id": name, "split": splits[split]} for name, split in zip(names, SPLITS, strict=True)]
    sentences = [{"video_id": names[n], "caption": text} for n in IMAGES for text in CAPTIONS[n % 2]]
    _write(folder / "msrvtt" / "videodatainfo.json", {"videos": videos, "sentences": sentences})
    for store in ("vatex_i3d", "msrvtt_resnet101"):
        write_features(folder / store, names, boxes=False)


def _write_photographs(folder: Path) -> None:
    lines = ["file,caption"]
    for number in range(10):
        Image.new("RGB", (40, 30), (25 * number, 80, 120)).save(folder / f"{number}.png")
        lines += [f"{number}.png,{text}" for text in CAPTIONS[number % 2]]
    (folder / "captions.csv").write_text("\n".join(lines) + "\n")


def write_questions(folder: Path) -> None:
    """Write the questions and annotations of VQA."""
    files = {
        "train": "v2_OpenEnded_mscoco_train2014_questions v2_mscoco_train2014_annotations",
        "val": "v2_OpenEnded_mscoco_val2014_questions v2_mscoco_val2014_annotations",
        "vg": "VG_questions VG_annotations",
    }
    for number, (part, names) in enumerate(files.items()):
        questions, annotations = names.split()
        images = [*IMAGES] * 3 if part == "train" else [0]
        asked = [(image, 100 * number + index) for index, image in enumerate(images)]
        entries = [{"image_id": image, "question_id": key, "question": "What is it?"} for image, key in asked]
        _write(folder / f"{questions}.json", {"questions": entries})
        _write(folder / f"{annotations}.json", {"annotations": [_annotation(key) for _, key in asked]})


def _annotation(key: int) -> dict[str, Any]:
    answer = ("dog", "beach")[key % 2]
    kinds = {"question_type": "what is", "answer_type": "other", "multiple_choice_answer": answer}
    return {"question_id": key, "answers": [{"answer": answer}] * 10, **kinds}


def write_daquar(folder: Path) -> None:
    """Write DAQUAR and its features."""
    names = [f"image{n}" for n in range(1, 13)]
    (folder / "daquar").mkdir()
    lines = ["question,answer,image_id", *(f"what is on the floor,{('dog', 'bed')[len(n) % 2]},{n}" for n in names)]
    (folder / "daquar" / "data.csv").write_text("\n".join(lines) + "\n")
    (folder / "daquar" / "train_images_list.txt").write_text("\n".join(names[:11]))
    (folder / "daquar" / "test_images_list.txt").write_text(names[11])
    write_features(folder / "daquar.safetensors", names)


def write_expressions(folder: Path, by: str) -> None:
    """Write the expressions of RefCOCO, and the boxes that they mean."""
    entries: list[Mapping[str, Any]] = [
        {"ann_id": n, "image_id": n, "split": split, "sentences": [{"sent_id": n, "tokens": ["the", "brown", "dog"]}]}
        for n, split in zip(IMAGES, SPLITS, strict=True)
    ]
    instances = {
        "images": [{"id": n, "width": 100, "height": 100} for n in IMAGES],
        "annotations": [{"id": n, "bbox": [10, 10, 50, 50]} for n in IMAGES],
    }
    _write(folder / "instances.json", instances)
    (folder / f"refs({by}).p").write_bytes(pickle.dumps(entries, protocol=2))


def write_entities(folder: Path) -> None:
    """Write the phrases of Flickr30k Entities."""
    caption = {"text": CAPTIONS[0][0], "sentid": 0, "phrases": [[1, ["animals"], 0, 2]]}
    entry = {"width": 100, "height": 100, "boxes": {"1": [[10, 10, 60, 60]]}, "captions": [caption]}
    content = json.dumps({f"{n:012d}.jpg": entry for n in IMAGES}).encode()
    (folder / "flickr30k_entities.json.gz").write_bytes(gzip.compress(content))


def write_translations(folder: Path) -> None:
    """Write parallel text of WMT 2014 and Multi30k."""
    names = {
        "wmt14": [f"{name}.tok.bpe.32000" for name in ("newstest2013", "newstest2014")] + ["train.tok.clean.bpe.32000"],
        "multi30k": ["train", "val", "test_2016_flickr"],
    }
    for part, files in names.items():
        (folder / part).mkdir()
        for file in files:
            for language, lines in (("en", CAPTIONS[0]), ("de", tuple(map(str.title, CAPTIONS[0])))):
                (folder / part / f"{file}.{language}").write_text("\n".join(lines) + "\n")
