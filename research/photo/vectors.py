"""Compute the vectors of photographs once: what the networks of the extractor `photo` see.

    python research/photo/vectors.py DATA OUT VIEW

reads the photographs that coco.py lists and writes OUT/VIEW.npz; VIEW is `plain`, or `mirrored` for the mirror images
of those that train. lite2.onnx, nanodet.onnx and classifier.safetensors are in OUT (networks.py). Takes about 0.08 s a
photograph on one core.
"""

import sys
import time
from pathlib import Path

import numpy as np
from coco import TRAIN, UNUSED, listed_photographs, open_photograph
from PIL import ImageOps

from legenda.io import atomic_write
from legenda.photo.regions import MAX_THINGS
from legenda.photo.vision import CHANNELS, MOST_BOXES, OTHERS, PARTS, Vision

VIEWS = ("plain", "mirrored")


def view_rows(folder: Path, view: str) -> np.ndarray:
    """Return the rows of captions.npz whose photographs have this view."""
    split = np.load(folder / "captions.npz")["photo_split"]
    return np.flatnonzero(split == TRAIN if view == "mirrored" else split != UNUSED)


def main() -> None:
    """Write the file."""
    data, out, view = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    entries, rows = listed_photographs(data, out), view_rows(out, view)
    vision = Vision.load(out)
    count = len(rows)
    arrays = {
        "whole": np.zeros((count, CHANNELS), np.float16),
        "parts": np.zeros((count, PARTS, CHANNELS), np.float16),
        "pooled": np.zeros((count, MAX_THINGS, CHANNELS), np.float16),
        "others": np.zeros((count, sum(OTHERS)), np.float16),
        "boxes": np.zeros((count, MOST_BOXES, 4), np.float32),
        "scores": np.zeros((count, MOST_BOXES), np.float32),
        "classes": np.zeros((count, MOST_BOXES), np.uint8),
        "count": np.zeros(count, np.int32),
        "size": np.zeros((count, 2), np.int32),
    }
    started = time.time()
    for position, row in enumerate(rows):
        image = open_photograph(entries[row])
        vectors = vision(ImageOps.mirror(image) if view == "mirrored" else image)
        things = vectors.things
        number = len(things.scores)
        arrays["whole"][position], arrays["parts"][position] = vectors.whole, vectors.parts
        arrays["pooled"][position, : min(number, MAX_THINGS)] = vectors.pooled[:MAX_THINGS]
        arrays["others"][position] = vectors.others
        arrays["boxes"][position, :number], arrays["scores"][position, :number] = things.boxes, things.scores
        arrays["classes"][position, :number], arrays["count"][position] = things.classes, number
        arrays["size"][position] = image.size
        if position % 50 == 49:
            print(
                f"{position + 1} of {count}, {1000 * (time.time() - started) / (position + 1):.0f} ms each", flush=True
            )
    with atomic_write(out / f"{view}.npz") as partial, partial.open("wb") as file:
        np.savez(file, rows=rows, **arrays)


if __name__ == "__main__":
    main()
