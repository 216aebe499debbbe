"""Prepare the captions and boxes of COCO, and the captions of the photographs: one compact file.

    python research/photo/coco.py DATA OUT [flickr8k]

writes OUT/vocabulary.txt, OUT/captions.npz and OUT/embedding.npy, vectors of the words to begin with. COCO's images
of which no caption or box may be used in any stage are left out: those of coco_splits/withheld_photos.txt and
Karpathy's validation and test images; so are all photographs of DATA/coco_photos and DATA/coco_photos_more, which later
stages train and validate on. With `flickr8k`, the 5,999 training photographs of DATA/flickr8k follow them, to train on
only, and later stages of OUT take them too. Takes about a minute.

captions.npz: `ids` of COCO's images; `boxes` (0..4095) and `categories` of all of them, with `box_starts`; `coco` and
`photo`: ids of the captions' words, 5 captions an image, `(images, 5, 18)`, after the words the end, then -1;
`photo_ids`, below 0 for Flickr8k, `photo_classes`, the classes of things that each shows, `(photographs, 80)`, and
`photo_split` of the photographs: `TRAIN`, `VALIDATION`, `MEASURED` or `UNUSED`.
"""

import gzip
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from common import MODEL
from PIL import Image

from legenda.text import Vocabulary, ptb_tokenize
from legenda.text.annotations import CaptionedImage, read_annotations

MAX_WORDS = 17
"""Words of a caption that are learned."""
MIN_COUNT = 40
"""A word is in the vocabulary where the training captions hold it so often."""
FILES = ("coco_photos/dataset_coco_photos.json.gz", "coco_photos_more/dataset_coco_photos_more.json.gz")
"""The two sets of photographs, in Karpathy's layout."""
DETECTED = 0.5
"""Score of a detection from which a photograph of Flickr8k, which has no true boxes, is taken to show a thing."""
LONG_SIDE = 320
"""Pixels of the longer side of all photographs."""
TRAIN, VALIDATION, MEASURED, UNUSED = range(4)
"""Photographs that train, that choose among models, on which only numbers are measured, and surplus ones of sports."""
SPORTS = frozenset(range(29, 39))
"""Classes of COCO, from frisbee to tennis racket."""
SPORTS_SHARE = 0.3
"""Share of the photographs of sports in the second set that train; that set has too many of them."""
Tokens = list[list[str]]


def withheld_ids(data: Path) -> set[int]:
    """Return the ids whose captions and boxes must not be used."""
    splits = data / "coco_splits"
    ids = {int(line) for line in (splits / "withheld_photos.txt").read_text().split()}
    for name in ("val", "test"):
        lines = (splits / f"karpathy_{name}_images.txt").read_text().splitlines()
        ids |= {int(line.split()[-1]) for line in lines if line.strip()}
    return ids


def coco_images(data: Path) -> list[CaptionedImage]:
    """Return COCO's images, of both years' files, whose captions may be used: all that are not withheld."""
    withheld = withheld_ids(data)
    return [image for image in read_annotations(data / "coco_captions") if int(image.id) not in withheld]


def read_photographs(data: Path, *, flickr8k: bool = False) -> list[dict[str, Any]]:
    """Return the entries of all photographs, in the order of the files, with the folder of each as `folder`.

    flickr8k: whether Flickr8k's training photographs follow, with -1, -2, ... as `cocoid`.
    """
    entries = []
    for name in FILES:
        with gzip.open(data / name) as file:
            folder = (data / name).parent
            entries += [entry | {"folder": folder / entry["filepath"]} for entry in json.load(file)["images"]]
    if flickr8k:
        folder = data / "flickr8k"
        with gzip.open(folder / "dataset_flickr8k.json.gz") as file:
            train = [entry for entry in json.load(file)["images"] if entry["split"] == "train"]
        entries += [
            entry | {"folder": folder / "images", "cocoid": -number} for number, entry in enumerate(train, start=1)
        ]
    return entries


def listed_photographs(data: Path, folder: Path) -> list[dict[str, Any]]:
    """Return the entries of the photographs of a folder's captions.npz, in the order of its rows."""
    ids = np.load(folder / "captions.npz")["photo_ids"]
    return read_photographs(data, flickr8k=bool((ids < 0).any()))


def open_photograph(entry: dict[str, Any]) -> Image.Image:
    """Return a photograph in its own aspect; those of Flickr8k are stored as squares."""
    image = Image.open(entry["folder"] / entry["filename"]).convert("RGB")
    if "orig_width" in entry:
        width, height = entry["orig_width"], entry["orig_height"]
        scale = LONG_SIDE / max(width, height)
        image = image.resize((round(width * scale), round(height * scale)), Image.Resampling.BICUBIC)
    return image


def detected_classes(data: Path, entries: Sequence[dict[str, Any]]) -> dict[int, set[int]]:
    """Return the classes of things that the detector sees in each photograph of Flickr8k, by its id."""
    stored = np.load(data / "flickr8k" / "detections_nanodetplus.npz")
    classes, seen = stored["classes"], stored["scores"] >= DETECTED
    slot = {name: row for row, name in enumerate(stored["filenames"].tolist())}
    rows = [(entry["cocoid"], slot[entry["filename"]]) for entry in entries]
    return {number: set(classes[row, seen[row]].tolist()) for number, row in rows}


def split_photographs(entries: Sequence[dict[str, Any]], classes: Mapping[int, set[int]]) -> np.ndarray:
    """Return the split of each photograph.

    classes: the classes of things that COCO's images show, by id. Validation photographs of the first set choose, those
    of the second only measure.
    """
    first = {entry["cocoid"] for entry in entries if entry["folder"].parent.name == "coco_photos"}
    generator, splits = np.random.default_rng(0), []
    for entry in entries:
        new = entry["cocoid"] not in first
        if entry["split"] == "val":
            splits.append(MEASURED if new else VALIDATION)
        elif new and SPORTS & classes.get(entry["cocoid"], set()) and generator.random() >= SPORTS_SHARE:
            splits.append(UNUSED)
        else:
            splits.append(TRAIN)
    return np.array(splits, np.uint8)


def encode(images: Sequence[Tokens], vocabulary: Vocabulary) -> np.ndarray:
    """Return the first five captions of each image as ids; missing ones are -1."""
    rows = np.full((len(images), 5, MAX_WORDS + 1), -1, np.int16)
    for row, image in enumerate(images):
        for number, tokens in enumerate(image[:5]):
            ids = [*vocabulary.encode(tokens), vocabulary.eos_token_id][: MAX_WORDS + 1]
            rows[row, number, : len(ids)] = ids
    return rows


def word_vectors(captions: np.ndarray, words: int, channels: int = 256) -> np.ndarray:
    """Return vectors of length 1 of all words from their neighbors, up to two positions away (Levy and Goldberg, 2014).

    captions: ids `(..., T)`, padded with -1.
    """
    rows = captions.reshape(-1, captions.shape[-1]).astype(np.int64)
    matrix = np.zeros((words, 4 * words), np.float32)
    for number, offset in enumerate((-2, -1, 1, 2)):
        first, last = (rows[:, -offset:], rows[:, :offset]) if offset < 0 else (rows[:, :-offset], rows[:, offset:])
        known = (first >= 0) & (last >= 0)
        pairs = np.bincount(first[known] * words + last[known], minlength=words * words)
        matrix[:, number * words : (number + 1) * words] = pairs.reshape(words, words)
    expected = (matrix.sum(1, keepdims=True) + 1) * (matrix.sum(0, keepdims=True) + 50) / matrix.sum()
    positive = np.log(np.maximum(matrix / expected, 1))
    values, basis = np.linalg.eigh(positive @ positive.T)
    vectors = basis[:, ::-1][:, :channels] * values[::-1][:channels].clip(0) ** 0.25
    return (vectors / (np.linalg.norm(vectors, axis=1, keepdims=True) + 1e-9)).astype(np.float32)


def main() -> None:
    """Write the files."""
    data, out, flickr8k = Path(sys.argv[1]), Path(sys.argv[2]), len(sys.argv) > 3
    entries = read_photographs(data, flickr8k=flickr8k)
    photographs = {entry["cocoid"] for entry in entries}
    stored = np.load(data / "coco_boxes.npz")
    category = stored["category"]
    starts = np.concatenate([[0], np.cumsum(stored["count"], dtype=np.int64)])
    slot = {int(number): position for position, number in enumerate(stored["image_id"])}
    shown = {i: set(category[starts[slot[i]] : starts[slot[i] + 1]].tolist()) for i in photographs & slot.keys()}
    split = split_photographs(entries, shown)
    if flickr8k:
        shown |= detected_classes(data, [entry for entry in entries if entry["cocoid"] < 0])
    classes = np.zeros((len(entries), 80), bool)
    for row, entry in enumerate(entries):
        classes[row, list(shown.get(entry["cocoid"], ()))] = True
    photo = [[ptb_tokenize(sentence["raw"]) for sentence in entry["sentences"]] for entry in entries]
    images = [
        (int(image.id), [ptb_tokenize(caption) for caption in image.captions])
        for image in coco_images(data)
        if int(image.id) in slot and int(image.id) not in photographs
    ]
    ids = np.array([number for number, _ in images])
    coco = [tokens for _, tokens in images]
    train = [tokens for tokens, part in zip(photo, split, strict=True) if part == TRAIN]
    counts = Counter(token for image in (*coco, *train) for caption in image for token in caption)
    vocabulary = Vocabulary.from_counts(counts, min_count=MIN_COUNT)
    vocabulary.save(out / "vocabulary.txt")
    slots = np.array([slot[number] for number in ids.tolist()])
    chosen = np.concatenate([np.arange(starts[s], starts[s + 1]) for s in slots])
    rows = encode(coco, vocabulary)
    np.savez(
        out / "captions.npz",
        ids=ids,
        boxes=stored["boxes"][chosen],
        categories=category[chosen],
        box_starts=np.concatenate([[0], np.cumsum(stored["count"][slots], dtype=np.int64)]),
        coco=rows,
        photo=encode(photo, vocabulary),
        photo_ids=np.array([entry["cocoid"] for entry in entries]),
        photo_split=split,
        photo_classes=classes,
    )
    np.save(out / "embedding.npy", word_vectors(rows, len(vocabulary), int(MODEL["dim"])))
    print(f"{len(ids)} images of COCO, {len(vocabulary)} tokens, photographs of each split {np.bincount(split)}")


if __name__ == "__main__":
    main()
