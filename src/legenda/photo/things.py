"""The things in the regions of the extractor `photo`, and a caption that names nothing else."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from PIL import Image

from legenda.io import read_text
from legenda.photo.layout import CLASSES, IS_THING, SCORE
from legenda.photo.vision import load_vision
from legenda.run_folder import ASSETS, PACKAGED

NAMED_SCORE = 0.4
"""Least score of a thing that a caption of things names; on 150 photographs three of four such boxes were right."""
KIND_SHARE = 0.5
"""Least probability of a kind that a caption names; of 50 photographs without things of good score which have such a
kind, human captions name it in 24, and many others show it (of 113 above 0.2, in 47)."""
_HINT = "install legenda again"
_NAMED = 3
"""Kinds of things that it names at most."""
_NUMBERS = ("a", "two", "three", "four", "several")
_PLURALS = {"person": "people", "knife": "knives", "mouse": "mice", "sheep": "sheep", "broccoli": "heads of broccoli"}


@dataclass(frozen=True)
class Thing:
    """A detected thing: its class of COCO, its score in 0..1 and its box, x1 y1 x2 y2 in 0..1 of the image."""

    label: str
    score: float
    box: tuple[float, float, float, float]


@cache
def labels() -> tuple[str, ...]:
    """Return the names of COCO's 80 classes."""
    return tuple(read_text(ASSETS / PACKAGED / "things.txt", _HINT).split("\n")[:CLASSES])


def read_things(features: np.ndarray, boxes: np.ndarray) -> tuple[Thing, ...]:
    """Return the things among the regions of an image, `(N, WIDTH)` and `(N, 4)`, best first."""
    rows = np.flatnonzero(features[:, IS_THING] == 1)
    kinds = features[rows, :CLASSES].argmax(1)
    return tuple(
        Thing(labels()[kind], round(float(features[row, SCORE]), 3), tuple(np.round(boxes[row], 4).tolist()))
        for row, kind in zip(rows, kinds, strict=True)
    )


def name_kind(image: Image.Image) -> str | None:
    """Return the kind of thing that an RGB image shows; None where that is unsure.

    Kinds are groups of ImageNet's classes, of EfficientNet-Lite2's classifier.
    """
    names = read_text(ASSETS / PACKAGED / "kinds.txt", _HINT).splitlines()
    shares: dict[str, float] = defaultdict(float)
    for name, share in zip(names, load_vision().classify(image).tolist(), strict=True):
        shares[name] += share
    best = max(shares, key=lambda name: shares[name])
    return best if shares[best] >= KIND_SHARE else None


def describe_things(things: Sequence[Thing], image: Image.Image) -> str:
    """Return a caption that names the things of good score alone, the kinds that cover most first.

    Without any, the kind of thing that the RGB image shows.
    """
    sure = [thing for thing in things if thing.score >= NAMED_SCORE]
    areas: dict[str, float] = defaultdict(float)
    for thing in sure:
        left, top, right, bottom = thing.box
        areas[thing.label] += (right - left) * (bottom - top)
    counts = Counter(thing.label for thing in sure)
    names = [_count(label, counts[label]) for label in sorted(areas, key=lambda label: -areas[label])[:_NAMED]]
    if not names:
        kind = name_kind(image)
        names = ["something unknown" if kind is None else _count(kind, 1)]
    return "a photograph of " + " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _count(label: str, count: int) -> str:
    number = _NUMBERS[min(count, len(_NUMBERS)) - 1]
    if label in ("skis", "scissors"):
        return label if count == 1 else f"{number} pairs of {label}"
    if count == 1:
        return f"an {label}" if label[0] in "aeiou" else f"a {label}"
    ending = "es" if label.endswith(("s", "sh", "ch")) else "s"
    return f"{number} {_PLURALS.get(label, label + ending)}"
