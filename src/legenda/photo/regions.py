"""The extractor `photo`: regions of things, visual tokens and predicted words, by networks that the package holds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from legenda.arrays import load_arrays
from legenda.errors import CheckpointError
from legenda.images.extractor import Extractor
from legenda.io import read_text
from legenda.photo.layout import (
    CENTER,
    IS_PART,
    IS_PHRASE,
    IS_WORD,
    LIFT,
    LOG_SHARE,
    MAX_THINGS,
    MIN_SCORE,
    SEES_PIXELS,
    SHARE,
    START_DENSE,
    START_GLOBAL,
    START_SCALARS,
    START_VISUAL,
    START_WORD,
    WIDTH,
    fill_things,
    fill_whole,
)
from legenda.photo.vision import PARTS, ImageVectors, load_vision, part_boxes
from legenda.run_folder import ASSETS, PACKAGED

_HINT = "install legenda again, or write the folder again"

NUM_WORDS = 16
"""Single words among an image's predicted ones."""
NUM_PHRASES = 6
"""Predicted pairs of words, such as "black dog"."""
SUFFICIENT_SIDE = 832
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
        of_words = features[:, -(NUM_WORDS + NUM_PHRASES) :]
        of_words[..., START_WORD:START_SCALARS] = self.vectors[chosen]
        share = np.take_along_axis(shares, chosen, axis=1)
        of_words[..., SHARE] = 3 * share
        of_words[..., LOG_SHARE] = np.log(share) / 4
        of_words[..., LIFT] = np.log(share / self.prior[chosen]) / 4
        of_words[:, :NUM_WORDS, IS_WORD] = 1
        of_words[:, NUM_WORDS:, IS_PHRASE] = 1


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
        x = self.tensors["words.weight"] @ gelu(x) + self.tensors["words.bias"]
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


def gelu(x: np.ndarray) -> np.ndarray:
    """Return the Gaussian error linear unit of x, by its approximation with tanh (Hendrycks and Gimpel, 2016)."""
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def load_photo(model: str, *, compute: object) -> Extractor:  # noqa: ARG001 - the arguments of every extractor
    """Return the extractor of the packaged model, whose features are `(N, WIDTH)`, always on the CPU.

    Raise LegendaError for a file that is missing or damaged.
    """
    vision, maker = load_vision(), RegionMaker.load(ASSETS / PACKAGED)
    return Extractor(
        "photo", lambda images: [maker.regions(vision(image)) for image in images], sufficient_side=SUFFICIENT_SIDE
    )
