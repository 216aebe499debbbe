"""Features and annotations of Flickr8k: every photograph, and those of the training split in further views.

    BACKBONES=weights python research/benchmarks/flickr8k_store.py flickr8k flickr8k_views

reads `flickr8k/dataset_flickr8k.json.gz`, its images and `detections_nanodetplus.npz`, and writes
`flickr8k_views.safetensors` and `flickr8k_views.json.gz`, the annotations with an image for each view.
"""

import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import flickr8k_extractor as extractor
import numpy as np
import torch
from PIL import Image

from legenda.data.features.packed import write_store
from legenda.extractors import load_extractor

VIEWS, LEAST_SIDE, LEAST_LEFT, TOGETHER = 3, 0.65, 0.3, 32
WHOLE, MIRRORED = (0.0, 0.0, 1.0, 1.0, False), (0.0, 0.0, 1.0, 1.0, True)
View = tuple[float, float, float, float, bool]
"""The part of an image, x1 y1 x2 y2 in 0..1, and whether it is mirrored."""


def main() -> None:
    """Writes both files."""
    folder, out = Path(sys.argv[1]), sys.argv[2]
    with gzip.open(folder / "dataset_flickr8k.json.gz") as file:
        dataset = json.load(file)
    images, jobs = [], []
    chance = np.random.default_rng(0)
    for image in dataset["images"]:
        for number, view in enumerate(views(chance) if image["split"] == "train" else [WHOLE]):
            name = Path(image["filename"])
            seen = image | {"filename": f"{name.stem}.{number}{name.suffix}" if number else name.name}
            images.append(seen)
            jobs.append((Path(seen["filename"]).stem, folder / "images" / name, view))
    with gzip.open(f"{out}.json.gz", "wt") as file:
        json.dump(dataset | {"images": images}, file)
    detections = np.load(folder / "detections_nanodetplus.npz")
    name = load_extractor(Path(__file__).with_name("flickr8k_extractor.py")).name
    write_store(f"{out}.safetensors", described(jobs, detections), extractor=name)


def views(chance: np.random.Generator) -> list[View]:
    """The whole image, its mirror image, and random parts of it."""
    found = [WHOLE, MIRRORED]
    for _ in range(VIEWS - len(found)):
        width, height = chance.uniform(LEAST_SIDE, 1, 2)
        left, top = chance.uniform(0, 1 - width), chance.uniform(0, 1 - height)
        found.append((left, top, left + width, top + height, bool(chance.integers(2))))
    return found


def described(
    jobs: list[tuple[str, Path, View]], detections: np.lib.npyio.NpzFile
) -> Iterator[tuple[str, np.ndarray, np.ndarray | None]]:
    """The regions of every view, in the order given."""
    rows = {name: row for row, name in enumerate(detections["filenames"].tolist())}
    arrays = {key: detections[key] for key in ("boxes", "classes", "scores", "count")}
    for begin in range(0, len(jobs), TOGETHER):
        batch = jobs[begin : begin + TOGETHER]
        images, found = [], []
        for _, path, view in batch:
            with Image.open(path) as image:
                images.append(cut(image.convert("RGB"), view))
            row = rows[path.name]
            own = slice(min(int(arrays["count"][row]), extractor.MOST))
            detected = [torch.from_numpy(arrays[key][row, own].copy()) for key in ("boxes", "classes", "scores")]
            found.append(moved(*detected, view))
        pixels = torch.stack([torch.from_numpy(np.array(image)) for image in images]).permute(0, 3, 1, 2).float()
        for (name, *_), (features, boxes) in zip(batch, extractor.describe(pixels, found), strict=True):
            yield name, features, boxes
        print(f"\r{begin + len(batch)} of {len(jobs)}", end="", file=sys.stderr, flush=True)


def cut(image: Image.Image, view: View) -> Image.Image:
    """A view of an image, at the backbone's size."""
    *box, mirrored = view
    sides = (*image.size, *image.size)
    part = tuple(edge * side for edge, side in zip(box, sides, strict=True))
    seen = image.resize((extractor.SIDE,) * 2, Image.Resampling.BICUBIC, box=part)
    return seen.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if mirrored else seen


def moved(
    boxes: torch.Tensor, classes: torch.Tensor, scores: torch.Tensor, view: View
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Detections as they lie in a view: those of which enough is left and that are sure enough."""
    boxes, scores = boxes.float(), scores.float()
    left, top, right, bottom, mirrored = view
    origin = torch.tensor([left, top] * 2, dtype=torch.float32)
    size = torch.tensor([right - left, bottom - top] * 2, dtype=torch.float32)
    seen = (boxes - origin) / size
    clipped = seen.clamp(0, 1)
    area, rest = ((of[:, 2:] - of[:, :2]).prod(1) for of in (seen, clipped))
    kept = (rest >= LEAST_LEFT * area) & (rest > 0) & (scores >= extractor.LEAST_SCORE)
    if mirrored:
        clipped = torch.stack([1 - clipped[:, 2], clipped[:, 1], 1 - clipped[:, 0], clipped[:, 3]], 1)
    return clipped[kept], classes[kept].long(), scores[kept]


if __name__ == "__main__":
    main()
