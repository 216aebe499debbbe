"""The extractor `photo`: regions of things, visual tokens and predicted words, by networks that the package holds.

A region is the whole image, a part of it, a thing, or a predicted word or pair of words; each fills the channels that
it has and leaves the others 0, so that images of which only boxes are known have regions of the same kind. A caption
that names the things alone is made of them too.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Self

import numpy as np
from PIL import Image

from legenda.errors import CheckpointError
from legenda.images.extractor import Extractor
from legenda.io import load_arrays, read_text
from legenda.photo.vision import CLASSES, PARTS, ImageVectors, load_vision, part_boxes
from legenda.run_folder import ASSETS, PACKAGED

_HINT = "install legenda again, or write the folder again"

VISUAL, GLOBAL, DENSE, WORD, SCALARS = 160, 160, 128, 128, 16
"""Channels after those of the classes: pixels of the box, the whole image, all predictions, two words, numbers."""
START_VISUAL = CLASSES
START_GLOBAL = START_VISUAL + VISUAL
START_DENSE = START_GLOBAL + GLOBAL
START_WORD = START_DENSE + DENSE
_START_SCALARS = START_WORD + 2 * WORD
WIDTH = _START_SCALARS + SCALARS
"""Channels of a region."""
MAX_THINGS = 20
"""Things of an image that become regions, those with the best scores."""
MIN_SCORE = 0.25
"""Least score of a thing that becomes a region."""
IS_WHOLE, SEES_PIXELS, IS_PART, IS_THING, IS_WORD, IS_PHRASE, SCORE, ROOT_AREA = range(
    _START_SCALARS, _START_SCALARS + 8
)
CENTER, SIDES, SHARE, LOG_SHARE, LIFT = (_START_SCALARS + number for number in (8, 10, 12, 13, 14))
"""CENTER and SIDES are two channels each, x and y."""
_NUM_THINGS = _START_SCALARS + 15


def fill_things(
    features: np.ndarray, boxes: np.ndarray, things: np.ndarray, scores: np.ndarray, classes: np.ndarray
) -> None:
    """Fill the regions of an image's things, and their counts into the whole image, region 0.

    features `(1 + n, WIDTH)` and boxes `(1 + n, 4)` of an image; things: the boxes of n things, `(n, 4)`.
    """
    count = len(scores)
    boxes[1 : 1 + count] = things
    sides = (things[:, 2:] - things[:, :2]).clip(0)
    rows = np.arange(1, 1 + count)
    features[rows, classes] = 1
    features[1 : 1 + count, IS_THING] = 1
    features[1 : 1 + count, SCORE] = scores
    features[1 : 1 + count, ROOT_AREA] = np.sqrt(sides.prod(1))
    features[1 : 1 + count, CENTER : CENTER + 2] = (things[:, :2] + things[:, 2:]) / 2 - 0.5
    features[1 : 1 + count, SIDES : SIDES + 2] = sides
    features[0, :CLASSES] = np.log1p(np.bincount(classes, scores, minlength=CLASSES))
    features[0, _NUM_THINGS] = np.log1p(count) / 2


def fill_whole(features: np.ndarray, boxes: np.ndarray) -> None:
    """Fill the box of the whole image, region 0, and the channel that marks it."""
    features[0, IS_WHOLE] = 1
    boxes[0] = (0, 0, 1, 1)


NUM_WORDS = 16
"""Single words among an image's predicted ones."""
NUM_PHRASES = 6
"""Predicted pairs of words, such as "black dog"."""
_SUFFICIENT_SIDE = 832
"""Pixels of the longer side of an image that suffice, twice as many as the larger input of the two networks."""


@dataclass(frozen=True, eq=False)
class WordTable:
    """The words and pairs of words that are predicted, most frequent first, words before pairs.

    vectors: `(W, 2 * WORD)`, the vectors of the first and the last word of each. prior: `(W,)`, the mean share
    of an image's captions that hold it. projection: `(W, DENSE)`, principal directions of what `standardize`
    returns.
    """

    names: tuple[str, ...]
    num_words: int
    vectors: np.ndarray
    prior: np.ndarray
    projection: np.ndarray

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Return the table of a folder; raise LegendaError for a file that is missing or damaged."""
        names = tuple(read_text(folder / "words.txt", _HINT).splitlines())
        tensors = load_arrays(folder / "words.safetensors", _HINT)
        words, prior, projection = (tensors[name] for name in ("vectors", "prior", "projection"))
        num_words = sum(" " not in name for name in names)
        if (len(words), len(prior), len(projection)) != (num_words, len(names), len(names)):
            raise CheckpointError(f"{folder / 'words.txt'} does not fit words.safetensors; install legenda again")
        index = {name: number for number, name in enumerate(names)}
        ends = np.array([[index[name.split()[0]], index[name.split()[-1]]] for name in names])
        return cls(names, num_words, words[ends].reshape(len(names), -1), prior, projection)

    def standardize(self, shares: np.ndarray) -> np.ndarray:
        """Return predictions `(B, W)` on the scale on which they are compared and projected."""
        return np.sqrt(shares.clip(0)) - np.sqrt(self.prior)

    def fill(self, features: np.ndarray, shares: np.ndarray) -> None:
        """Fill predicted shares `(B, W)` into regions `(B, N, WIDTH)`.

        All predictions go into region 0, the words and then the pairs with the largest share / prior ** 0.25, largest
        first, into the last NUM_WORDS + NUM_PHRASES regions.
        """
        shares = shares.clip(1e-4, 1)
        features[:, 0, START_DENSE:START_WORD] = self.standardize(shares) @ self.projection
        scores = shares / self.prior**0.25
        words = _largest(scores[:, : self.num_words], NUM_WORDS)
        chosen = np.concatenate([words, self.num_words + _largest(scores[:, self.num_words :], NUM_PHRASES)], axis=1)
        regions = features[:, -(NUM_WORDS + NUM_PHRASES) :]
        regions[..., START_WORD:_START_SCALARS] = self.vectors[chosen]
        share = np.take_along_axis(shares, chosen, axis=1)
        regions[..., SHARE] = 3 * share
        regions[..., LOG_SHARE] = np.log(share) / 4
        regions[..., LIFT] = np.log(share / self.prior[chosen]) / 4
        regions[:, :NUM_WORDS, IS_WORD] = 1
        regions[:, NUM_WORDS:, IS_PHRASE] = 1


def _largest(scores: np.ndarray, count: int) -> np.ndarray:
    """Return the indices of the largest values of each row, largest first; the first of equal ones precedes."""
    return np.argsort(-scores, axis=1, kind="stable")[:, :count]


@dataclass(frozen=True, eq=False)
class RegionMaker:
    """Make regions of image vectors, and predict words.

    tensors: `mean` and `scale` of the joined vectors; `hidden.weight`, `hidden.bias`, `words.weight` and `words.bias`
    of the predictor, a network with one hidden layer; `visual` with `visual_mean`, and `globals`: principal directions
    of the parts and of the other vectors.
    """

    table: WordTable
    tensors: dict[str, np.ndarray]

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Return the maker of a folder; raise LegendaError for a file that is missing or damaged."""
        return cls(WordTable.load(folder), load_arrays(folder / "predictor.safetensors", "install legenda again"))

    def predict(self, vectors: ImageVectors) -> np.ndarray:
        """Return the predicted shares of captions that hold each word or pair of words, `(W,)`."""
        x = self.tensors["hidden.weight"] @ self._normalize(vectors) + self.tensors["hidden.bias"]
        x = self.tensors["words.weight"] @ _gelu(x) + self.tensors["words.bias"]
        return 1 / (1 + np.exp(-x))

    def _normalize(self, vectors: ImageVectors) -> np.ndarray:
        return (np.concatenate([vectors.whole, vectors.others]) - self.tensors["mean"]) * self.tensors["scale"]

    def regions(self, vectors: ImageVectors, shares: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return features `(N, WIDTH)` and boxes `(N, 4)` of an image.

        The whole image, its things, best first, its parts in row-major order, words and pairs of words; words have the
        box of the image. shares: predictions to use instead of the predictor's.
        """
        things = vectors.things
        count = int((things.scores[:MAX_THINGS] >= MIN_SCORE).sum())
        number = 1 + count + PARTS + NUM_WORDS + NUM_PHRASES
        features, boxes = np.zeros((number, WIDTH), np.float32), np.zeros((number, 4), np.float32)
        boxes[:, 2:] = 1
        fill_whole(features, boxes)
        fill_things(features, boxes, things.boxes[:count], things.scores[:count], things.classes[:count])
        parts = slice(1 + count, 1 + count + PARTS)
        boxes[parts] = part_boxes()
        features[parts, IS_PART] = 1
        features[parts, CENTER : CENTER + 2] = (boxes[parts, :2] + boxes[parts, 2:]) / 2 - 0.5
        features[0, SEES_PIXELS] = 1
        visual = np.concatenate([vectors.whole[np.newaxis], vectors.pooled[:count], vectors.parts])
        visual = (visual - self.tensors["visual_mean"]) @ self.tensors["visual"]
        features[: parts.stop, START_VISUAL:START_GLOBAL] = visual
        others = self._normalize(vectors)[len(vectors.whole) :] @ self.tensors["globals"]
        features[0, START_GLOBAL:START_DENSE] = others
        self.table.fill(features[None], (self.predict(vectors) if shares is None else shares)[None])
        return features, boxes


def _gelu(x: np.ndarray) -> np.ndarray:
    """Return the Gaussian error linear unit of x, by its approximation with tanh (Hendrycks and Gimpel, 2016)."""
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def load_photo(model: str, *, compute: object) -> Extractor:  # noqa: ARG001 - the arguments of every extractor
    """Return the extractor of the packaged model, whose features are `(N, WIDTH)`, always on the CPU.

    Raise LegendaError for a file that is missing or damaged.
    """
    vision, maker = load_vision(), RegionMaker.load(ASSETS / PACKAGED)
    return Extractor(
        "photo", lambda images: [maker.regions(vision(image)) for image in images], sufficient_side=_SUFFICIENT_SIDE
    )


NAMED_SCORE = 0.4
"""Least score of a thing that a caption of things names; on 150 photographs three of four such boxes were right."""
_KIND_SHARE = 0.5
"""Least probability of a kind that a caption names; of 50 photographs without things of good score which have such a
kind, human captions name it in 24, and many others show it (of 113 above 0.2, in 47)."""
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
    return best if shares[best] >= _KIND_SHARE else None


def describe_things(things: Sequence[Thing], image: Image.Image) -> str:
    """Return a caption that only names the things of good score, first the kinds that cover most of the image.

    Where there is no such thing, it names the kind of thing that the RGB image shows.
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
