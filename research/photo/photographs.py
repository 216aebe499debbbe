"""Compute the regions of all photographs once, those of training ones from cross-fitted words.

    python research/photo/photographs.py DATA OUT

reads the vectors, shares.npz and the extractor's files of OUT, and writes OUT/photographs.npz: `features` (float16) and
`boxes` of all regions, `starts` of each photograph's. Takes about half a minute.
"""

import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from words import load_vectors

from legenda.photo.layout import MAX_THINGS
from legenda.photo.regions import RegionMaker
from legenda.photo.vision import ImageVectors, Things


def make_regions(
    maker: RegionMaker, stored: Mapping[str, np.ndarray], image: int, shares: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the regions of a photograph of a set, and their boxes; shares: of the words that are predicted."""
    count = min(int(stored["count"][image]), MAX_THINGS)
    things = Things(
        *(torch.from_numpy(stored[key][image, :count]) for key in ("boxes", "scores")),
        torch.from_numpy(stored["classes"][image, :count].astype(np.int64)),
    )
    vectors = ImageVectors(
        torch.from_numpy(stored["whole"][image]).float(),
        torch.from_numpy(stored["parts"][image]).float(),
        things,
        torch.from_numpy(stored["pooled"][image, :count]).float(),
        torch.from_numpy(stored["others"][image]).float(),
    )
    return maker.regions(vectors, shares)


def main() -> None:
    """Write the file."""
    torch.set_num_threads(1)
    out = Path(sys.argv[2])
    maker = RegionMaker.load(out)
    shares = np.load(out / "shares.npz")["shares"]
    features, boxes, row = [], [], 0
    for name in ("coco", "flickr"):
        stored = load_vectors(out, name)
        for image in range(len(stored["whole"])):
            made, corners = make_regions(maker, stored, image, shares[row].astype(np.float32))
            features.append(made.astype(np.float16))
            boxes.append(corners)
            row += 1
    starts = np.cumsum([0, *map(len, features)])
    np.savez(out / "photographs.npz", features=np.concatenate(features), boxes=np.concatenate(boxes), starts=starts)


if __name__ == "__main__":
    main()
