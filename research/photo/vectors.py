"""Compute the vectors of photographs once: what the networks of the extractor `photo` see.

    python research/photo/vectors.py DATA OUT NAME [first last]

reads the photographs of DATA/coco_photos (NAME coco) or DATA/flickr8k (NAME flickr), and writes OUT/NAME.FIRST.npz.
Photographs of Flickr8k are 224 x 224 pixels; they are stretched to their original aspect first. Takes about 0.1 s a
photograph on one core.
"""

import gzip
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from legenda.photo.vision import Vision
from legenda.run_folder import ASSETS

MAX_THINGS = 20
"""Things of an image whose pooled vectors are kept."""
FILES = {"coco": "coco_photos/dataset_coco_photos.json.gz", "flickr": "flickr8k/dataset_flickr8k.json.gz"}


def load_images(data: Path, name: str) -> list[dict[str, Any]]:
    """Return the entries of the photographs, in the order of the file."""
    with gzip.open(data / FILES[name]) as file:
        return json.load(file)["images"]


def open_image(data: Path, name: str, entry: dict[str, Any]) -> Image.Image:
    """Return a photograph in its own aspect."""
    path = (data / FILES[name]).parent / "images" / entry["filename"]
    image = Image.open(path).convert("RGB")
    if "orig_width" in entry:
        width, height = entry["orig_width"], entry["orig_height"]
        scale = 320 / max(width, height)
        image = image.resize((round(width * scale), round(height * scale)), Image.Resampling.BICUBIC)
    return image


def main() -> None:
    """Write the file."""
    torch.set_num_threads(1)
    data, out, name = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    entries = load_images(data, name)
    first, last = (int(sys.argv[4]), int(sys.argv[5])) if len(sys.argv) > 4 else (0, len(entries))
    vision = Vision.load(ASSETS / "photo")
    entries = entries[first:last]
    count = len(entries)
    arrays = {
        "whole": np.zeros((count, 1280), np.float16),
        "parts": np.zeros((count, 9, 1280), np.float16),
        "pooled": np.zeros((count, MAX_THINGS, 1280), np.float16),
        "others": np.zeros((count, 320 + 1624 + 91 + 1001), np.float16),
        "boxes": np.zeros((count, 30, 4), np.float32),
        "scores": np.zeros((count, 30), np.float32),
        "classes": np.zeros((count, 30), np.uint8),
        "count": np.zeros(count, np.int32),
        "size": np.zeros((count, 2), np.int32),
    }
    started = time.time()
    for row, entry in enumerate(entries):
        image = open_image(data, name, entry)
        vectors = vision(image)
        things = vectors.things
        number = len(things.scores)
        arrays["whole"][row], arrays["parts"][row] = vectors.whole.numpy(), vectors.parts.numpy()
        arrays["pooled"][row, : min(number, MAX_THINGS)] = vectors.pooled[:MAX_THINGS].numpy()
        arrays["others"][row] = vectors.others.numpy()
        arrays["boxes"][row, :number], arrays["scores"][row, :number] = things.boxes.numpy(), things.scores.numpy()
        arrays["classes"][row, :number], arrays["count"][row], arrays["size"][row] = (
            things.classes.numpy(),
            number,
            image.size,
        )
        if row % 50 == 49:
            print(f"{row + 1} of {count}, {1000 * (time.time() - started) / (row + 1):.0f} ms each", flush=True)
    np.savez(out / f"{name}.{first}.npz", ids=np.array([entry["filename"] for entry in entries]), **arrays)


if __name__ == "__main__":
    main()
