"""Expected CIDEr: the score of a caption that the captions of similar photographs suggest.

CIDEr (Vedantam et al., CVPR 2015) is linear in the mean of the normalized TF-IDF vectors of an image's references.
Ridge regression predicts that mean from the whole image's features, so captions are ranked without references, as by
the consensus of Devlin et al., "Exploring Nearest Neighbor Approaches for Image Captioning", 2015. Logistic regression
from the same features predicts which of COCO's classes the image shows; a caption that names others scores less, and is
less probably right.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from legenda.errors import CheckpointError
from legenda.io import load_arrays
from legenda.photo.regions import CLASSES, START_WORD
from legenda.run_folder import ASSETS, CONFIG, PACKAGED, VOCABULARY
from legenda.runtime.search import SearchOutput
from legenda.text import Vocabulary
from legenda.text.ngrams import MAX_ORDER, Ngram, ngrams

CONSENSUS = "consensus.safetensors"
INPUTS = START_WORD
"""Channels of the whole image, region 0, from which the mean is predicted."""
_UNLIKELY = 0.5
"""Probability of a thing below which a caption that names it scores less."""
_HINT = "install legenda again, or remove consensus from the model's config.json"


@dataclass(frozen=True, eq=False)
class Consensus:
    """The CIDEr, in 0..10, to expect of captions.

    slots: the position of each n-gram of token ids in `idf`, `bias` `(M,)` and `weight` `(M, INPUTS)`. rare: the idf of
    all other n-grams, which are never expected. tensors: these and `names`, the class of things that each token names
    or -1, `(V,)`; `shown.weight` `(CLASSES, INPUTS)` and `shown.bias` of the classes; `penalty`, the loss of expected
    CIDEr for a unit of improbability of the named things; `confidence`, the coefficients of the method of that name.
    """

    slots: Mapping[Ngram, int]
    idf: Mapping[Ngram, float]
    rare: float
    tensors: Mapping[str, np.ndarray]
    weight: float
    """The weight of expected CIDEr beside the score of the search when captions are chosen."""

    @classmethod
    def of_package(cls, vocabulary: Vocabulary, weight: float) -> Self:
        """Return the packaged consensus; raise CheckpointError for a model of other words than the packaged one's."""
        folder = ASSETS / PACKAGED
        if vocabulary.tokens != Vocabulary.load(folder / VOCABULARY).tokens:
            raise CheckpointError(f"the consensus is of other words than the model; remove it from its {CONFIG}")
        return cls.load(folder, weight)

    @classmethod
    def load(cls, folder: Path, weight: float) -> Self:
        """Return the consensus of a folder; raise LegendaError for a file that is missing or damaged."""
        if not isinstance(weight, int | float) or not math.isfinite(weight):
            raise CheckpointError(f"consensus in a model's {CONFIG} must be a finite number, not {weight!r}")
        tensors = load_arrays(folder / CONSENSUS, _HINT)
        shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
        M = len(tensors.get("ngrams", ()))
        expected = {"mean": (INPUTS,), "scale": (INPUTS,), "weight": (M, INPUTS), "bias": (M,), "idf": (M,)}
        expected |= {"shown.weight": (CLASSES, INPUTS), "shown.bias": (CLASSES,), "names": shapes.get("names")}
        if shapes != expected | {"rare": (1,), "ngrams": (M, MAX_ORDER), "penalty": (1,), "confidence": (4,)}:
            raise CheckpointError(f"{folder / CONSENSUS} has other tensors than it should; {_HINT}")
        grams = [tuple(token for token in row if token >= 0) for row in tensors["ngrams"].tolist()]
        idf = dict(zip(grams, tensors["idf"].tolist(), strict=True))
        return cls({gram: slot for slot, gram in enumerate(grams)}, idf, float(tensors["rare"][0]), tensors, weight)

    def __call__(self, whole: np.ndarray, captions: Sequence[Sequence[Sequence[int]]]) -> np.ndarray:
        """Return the expected CIDEr of K captions of each of B images, less the penalty of improbable things, `(B, K)`.

        whole: the features of region 0, `(B, WIDTH)`. captions: token ids without EOS.
        """
        expected = self.expected_cider(whole, captions)
        return expected - self.tensors["penalty"] * self._improbability(whole, captions, _UNLIKELY)

    def expected_cider(self, whole: np.ndarray, captions: Sequence[Sequence[Sequence[int]]]) -> np.ndarray:
        """Return the expected CIDEr of K captions of each of B images, `(B, K)`."""
        expected = self._normalize(whole) @ self.tensors["weight"].T + self.tensors["bias"]
        scores = [
            [self._score(row, caption) for caption in image] for row, image in zip(expected, captions, strict=True)
        ]
        return np.array(scores, np.float32)

    def confidence(
        self, whole: np.ndarray, captions: Sequence[Sequence[Sequence[int]]], mean_log_probs: np.ndarray
    ) -> np.ndarray:
        """Return how probable it is that each caption names no thing that its image does not show, `(B, K)`.

        mean_log_probs: the mean log-probability of the tokens of each caption, `(B, K)`.
        """
        terms = self.confidence_terms(whole, captions, mean_log_probs)
        return 1 / (1 + np.exp(-(terms @ self.tensors["confidence"])))

    def confidence_terms(
        self, whole: np.ndarray, captions: Sequence[Sequence[Sequence[int]]], mean_log_probs: np.ndarray
    ) -> np.ndarray:
        """Return 1, log-probability, expected CIDEr and improbability, of which the confidence is made, `(B, K, 4)`."""
        expected = self.expected_cider(whole, captions)
        improbability = self._improbability(whole, captions, 1.0)
        return np.stack([np.ones_like(expected), mean_log_probs, expected, improbability], axis=-1)

    def _normalize(self, whole: np.ndarray) -> np.ndarray:
        return (whole[:, :INPUTS].astype(np.float32) - self.tensors["mean"]) * self.tensors["scale"]

    def _improbability(
        self, whole: np.ndarray, captions: Sequence[Sequence[Sequence[int]]], least: float
    ) -> np.ndarray:
        """Return the sum of log(least / p) over the classes that a caption names of a probability p below it."""
        logits = self._normalize(whole) @ self.tensors["shown.weight"].T + self.tensors["shown.bias"]
        costs = np.maximum(0, np.log(least) + np.logaddexp(0, -logits))
        names = self.tensors["names"]
        return np.array(
            [
                [row[[*{names[token] for token in caption} - {-1}]].sum() for caption in image]
                for row, image in zip(costs, captions, strict=True)
            ],
            np.float32,
        )

    def choose(self, output: SearchOutput, whole: np.ndarray, eos_token_id: int, count: int) -> SearchOutput:
        """Return the `count` best rows of each image by score and expected CIDEr, best first, with their scores."""
        captions = [
            [row[: row.index(eos_token_id)] if eos_token_id in row else row for row in image]
            for image in output.tokens.tolist()
        ]
        return output.sort_rows(output.scores + self.weight * self(whole, captions), count)

    def _score(self, expected: np.ndarray, caption: Sequence[int]) -> float:
        values = normalized(caption, self.idf, self.rare)
        terms = (value * expected[self.slots[gram]] for gram, value in values.items() if gram in self.slots)
        return 10 / MAX_ORDER * sum(terms)


def normalized(caption: Sequence[int], idf: Mapping[Ngram, float], rare: float) -> dict[Ngram, float]:
    """Return the TF-IDF vectors of a caption, one for each length of n-grams, each of norm 1.

    rare: the idf of n-grams that are not in `idf`.
    """
    values = {gram: count * idf.get(gram, rare) for gram, count in Counter(ngrams(caption)).items()}
    squares = [1e-12] * MAX_ORDER
    for gram, value in values.items():
        squares[len(gram) - 1] += value * value
    return {gram: value / math.sqrt(squares[len(gram) - 1]) for gram, value in values.items()}
