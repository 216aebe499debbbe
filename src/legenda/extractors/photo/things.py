"""The things in the regions of the extractor `photo`, and a caption that names nothing else."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from legenda.extractors.photo import layout
from legenda.io import read_text
from legenda.models.checkpoint import ASSETS, PACKAGED

NAMED_SCORE = 0.4
"""Least score of a thing that a caption of things names; on 150 photographs three of four such boxes were right."""
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
    return tuple(read_text(ASSETS / PACKAGED / "things.txt", "install legenda again").split("\n")[: layout.CLASSES])


def read_things(features: np.ndarray, boxes: np.ndarray) -> tuple[Thing, ...]:
    """Return the things among the regions of an image, `(N, layout.WIDTH)` and `(N, 4)`, best first."""
    rows = np.flatnonzero(features[:, layout.IS_THING] == 1)
    kinds = features[rows, : layout.CLASSES].argmax(1)
    return tuple(
        Thing(labels()[kind], round(float(features[row, layout.SCORE]), 3), tuple(np.round(boxes[row], 4).tolist()))
        for row, kind in zip(rows, kinds, strict=True)
    )


def describe_things(things: Sequence[Thing]) -> str:
    """Return a caption that names the things of good score alone, the kinds that cover most first."""
    sure = [thing for thing in things if thing.score >= NAMED_SCORE]
    areas: dict[str, float] = defaultdict(float)
    for thing in sure:
        left, top, right, bottom = thing.box
        areas[thing.label] += (right - left) * (bottom - top)
    counts = Counter(thing.label for thing in sure)
    names = [_count(label, counts[label]) for label in sorted(areas, key=lambda label: -areas[label])[:_NAMED]]
    if not names:
        return "a photograph of something unknown"
    return "a photograph of " + " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _count(label: str, count: int) -> str:
    number = _NUMBERS[min(count, len(_NUMBERS)) - 1]
    if label in ("skis", "scissors"):
        return label if count == 1 else f"{number} pairs of {label}"
    if count == 1:
        return f"an {label}" if label[0] in "aeiou" else f"a {label}"
    ending = "es" if label.endswith(("s", "sh", "ch")) else "s"
    return f"{number} {_PLURALS.get(label, label + ending)}"
