"""COCO without pixels: a region is the class and the box of a thing as people drew it.

    python research/experiments/coco_boxes.py DATA SYNONYMS OUT FIRST COUNT

writes OUT/coco_boxes/features.safetensors, classes.safetensors, objects.json (the classes of each test image) and, for
each of COUNT seeds from FIRST, captions-SEED.json.gz: IMAGES images and VALIDATION others, drawn by the seed from those
that are neither in Karpathy's validation or test split nor withheld, and all of Karpathy's test images with a box.
DATA: a folder with coco_captions, coco_splits and coco_boxes.npz. SYNONYMS: data/synonyms.txt of
github.com/LisaAnne/Hallucination.

A region of classes.safetensors has 80 features, its class of COCO's 80, and what a model knows of its box is the
model's affair. A region of features.safetensors has 86: left, top, right, bottom, width and height in 0..1 too, so that
every model has the absolute boxes, by a learned map. At most MAX_BOXES of an image, the largest.
"""

import gzip
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from legenda.features.packed import write_store
from legenda.io import read_json, write_json
from legenda.text import ptb_tokenize
from legenda.text.annotations import CaptionedImage, read_annotations

sys.path.append(str(Path(__file__).parents[1] / "photo"))
from chair import named, read_synonyms
from coco import withheld_ids

MAX_BOXES = 20
NUM_CLASSES = 80
IMAGES, VALIDATION = 48_000, 500
"""Training and validation images of a seed."""
RELATIONS = ("on", "under", "next to", "in front of", "riding")
MIN_REFERENCES = 2
"""References of five in which a relation must be stated to count as there."""


def region_features(categories: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """Return the features `(n, 86)` of the things of an image, the class first. boxes: x1 y1 x2 y2 in 0..1."""
    classes = np.eye(NUM_CLASSES)[categories]
    return np.concatenate([classes, boxes, boxes[:, 2:] - boxes[:, :2]], axis=1).astype(np.float32)


def largest(boxes: np.ndarray) -> np.ndarray:
    """Return the positions of the MAX_BOXES largest boxes, largest first."""
    areas = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)
    return np.argsort(-areas, kind="stable")[:MAX_BOXES]


def things(path: Path) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """Return the classes and boxes, in 0..1, of the things of each image of coco_boxes.npz."""
    stored = dict(np.load(path))
    starts = np.concatenate([[0], np.cumsum(stored["count"], dtype=np.int64)])
    boxes = stored["boxes"].astype(np.float32) / 4095
    parts = (slice(first, last) for first, last in pairwise(starts.tolist()))
    return {int(i): (stored["category"][p], boxes[p]) for i, p in zip(stored["image_id"], parts, strict=True)}


def draw(pool: Sequence[int], seed: int) -> dict[int, str]:
    """Return the split of each image that a seed draws."""
    chosen = np.random.default_rng(seed).choice(len(pool), IMAGES + VALIDATION, replace=False)
    return {pool[position]: "train" if rank < IMAGES else "val" for rank, position in enumerate(chosen.tolist())}


def write_captions(path: Path, images: Mapping[int, CaptionedImage], splits: Mapping[int, str]) -> None:
    """Write the captions of images in Karpathy's layout."""
    entries = [
        {"filename": f"{i}.jpg", "split": split, "sentences": [{"raw": caption} for caption in images[i].captions]}
        for i, split in sorted(splits.items())
    ]
    with gzip.GzipFile(path, "wb", mtime=0) as file:
        file.write(json.dumps({"images": entries}).encode())


def main() -> None:
    """Write the files."""
    data, synonyms, out = map(Path, sys.argv[1:4])
    first, count = map(int, sys.argv[4:6])
    out = out / "coco_boxes"
    out.mkdir(parents=True, exist_ok=True)
    regions = things(data / "coco_boxes.npz")
    images = {int(image.id): image for image in read_annotations(data / "coco_captions") if int(image.id) in regions}
    lines = (data / "coco_splits" / "karpathy_test_images.txt").read_text().splitlines()
    test = [number for line in lines if line.strip() and (number := int(line.split()[-1])) in images]
    withheld = withheld_ids(data)
    pool = sorted(number for number in images if number not in withheld)
    print(f"{len(pool)} images to draw from, {len(test)} test images")

    def rows(width: int | None) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
        for number in [*pool, *test]:
            categories, boxes = regions[number]
            kept = largest(boxes)
            yield str(number), region_features(categories[kept], boxes[kept])[:, :width], boxes[kept]

    for name, width in (("features", None), ("classes", NUM_CLASSES)):
        if not (store := out / f"{name}.safetensors").exists():
            write_store(store, rows(width), extractor="coco_boxes")
    if not (out / "objects.json").exists():
        known = read_synonyms(synonyms)
        labels = (data / "weights" / "coco_labels_80.txt").read_text().split("\n")
        objects = {
            str(number): sorted(
                {labels[c] for c in regions[number][0]}
                | {thing for caption in images[number].captions for thing in named(caption, known)}
            )
            for number in test
        }
        write_json(out / "objects.json", {"synonyms": known, "objects": objects})
    for seed in range(first, first + count):
        write_captions(out / f"captions-{seed}.json.gz", images, {**draw(pool, seed), **dict.fromkeys(test, "test")})


@cache
def _objects(folder: Path) -> dict[str, Any]:
    return read_json(folder / "objects.json", "coco_boxes.py writes it")


def hallucination(captions: Mapping[str, str], folder: Path) -> float:
    """Return CHAIR-i, the share of named things that are not in their image (Rohrbach et al., EMNLP 2018)."""
    known = _objects(folder)
    mentions = [
        (thing, known["objects"][Path(image).stem])
        for image, caption in captions.items()
        for thing in named(caption, known["synonyms"])
    ]
    return sum(thing not in there for thing, there in mentions) / max(len(mentions), 1)


def relations_of(caption: str) -> set[str]:
    """Return those of RELATIONS that a caption states."""
    text = f" {' '.join(ptb_tokenize(caption))} "
    return {relation for relation in RELATIONS if f" {relation} " in text}


def relation_f1(captions: Mapping[str, str], references: Mapping[str, Sequence[str]]) -> float:
    """Return the mean F1 score over RELATIONS of what captions state, against what MIN_REFERENCES references do."""
    named_relations = {image: relations_of(caption) for image, caption in captions.items()}
    known = {image: [relations_of(text) for text in references[image]] for image in captions}
    scores = []
    for relation in RELATIONS:
        there = {i for i, sets in known.items() if sum(relation in stated for stated in sets) >= MIN_REFERENCES}
        said = {image for image, relations in named_relations.items() if relation in relations}
        scores.append(2 * len(there & said) / max(len(there) + len(said), 1))
    return float(np.mean(scores))


if __name__ == "__main__":
    main()
