"""Compute the regions of all photographs once, those of training ones from cross-fitted words.

    python research/photo/photographs.py OUT

reads the vectors, shares.npz and the extractor's files of OUT, and writes OUT/photographs.npz: `features` (float16) and
`boxes` of all regions, `starts` of each sample's, its `row` in captions.npz, and the first mirrored sample. Takes about
half a minute.
"""

import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from words import load_vectors

from legenda.photo.regions import MAX_THINGS, RegionMaker
from legenda.photo.vision import ImageVectors, Things


def make_regions(
    maker: RegionMaker, stored: Mapping[str, np.ndarray], sample: int, shares: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the regions of a photograph and their boxes; shares: of the words that are predicted."""
    count = min(int(stored["count"][sample]), MAX_THINGS)
    boxes, scores = (stored[key][sample, :count] for key in ("boxes", "scores"))
    things = Things(boxes, scores, stored["classes"][sample, :count].astype(np.int64))
    whole, parts, others = (stored[key][sample].astype(np.float32) for key in ("whole", "parts", "others"))
    pooled = stored["pooled"][sample, :count].astype(np.float32)
    return maker.regions(ImageVectors(whole, parts, things, pooled, others), shares)


def main() -> None:
    """Write the file."""
    out = Path(sys.argv[1])
    maker, stored, shares = RegionMaker.load(out), load_vectors(out), np.load(out / "shares.npz")["shares"]
    features, boxes = [], []
    for sample in range(len(shares)):
        made, corners = make_regions(maker, stored, sample, shares[sample].astype(np.float32))
        features.append(made.astype(np.float16))
        boxes.append(corners)
    rows = stored["rows"]
    decreasing = np.flatnonzero(np.diff(rows) < 0)
    np.savez(
        out / "photographs.npz",
        features=np.concatenate(features),
        boxes=np.concatenate(boxes),
        starts=np.cumsum([0, *map(len, features)]),
        row=rows,
        first_mirrored=decreasing[0] + 1 if len(decreasing) else len(rows),
    )


if __name__ == "__main__":
    main()
