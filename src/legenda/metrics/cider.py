"""CIDEr-D, which COCO reports as "CIDEr", and plain CIDEr.

Sources: Vedantam et al., "CIDEr: Consensus-based Image Description Evaluation", 2015, equations 1-3 for CIDEr and the
section on gameability for CIDEr-D; pycocoevalcap 1.2 and the `cider` package of the self-critical codes, to whose
values both are equal.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from legenda.metrics.ngrams import LONGEST, count_ngrams

_SIGMA = 6.0


@dataclass(frozen=True)
class DocumentFrequencies:
    """In how many of `documents` each n-gram occurs. A document is all the references of one image."""

    counts: Mapping[tuple[str, ...], int]
    documents: int

    @classmethod
    def from_references(cls, references: Iterable[Sequence[Sequence[str]]]) -> Self:
        """Counts the documents of tokenized references, given image by image."""
        counts: Counter[tuple[str, ...]] = Counter()
        documents = 0
        for captions in references:
            documents += 1
            counts.update({ngram for caption in captions for ngram in count_ngrams(caption)})
        return cls(counts, documents)

    def weight(self, ngram: tuple[str, ...]) -> float:
        """The inverse document frequency, log(documents / occurrences); an unseen n-gram counts as seen once."""
        return math.log(self.documents) - math.log(max(1, self.counts.get(ngram, 0)))


@dataclass(frozen=True)
class _Vector:
    """A caption as tf-idf weights (equation 1, with counts for frequencies) and a norm for each length of n-gram."""

    weights: dict[tuple[str, ...], float]
    norms: tuple[float, ...]
    length: int


def cider_d(candidate: Sequence[str], references: Sequence[Sequence[str]], frequencies: DocumentFrequencies) -> float:
    """CIDEr-D of one image, in 0..10: n-gram similarity with counts clipped at the reference's and unequal lengths
    punished by a Gaussian of sigma 6. Lengths are numbers of bigrams, as in the reference program.
    """
    hypothesis = _vector(candidate, frequencies)
    total = 0.0
    for reference in references:
        other = _vector(reference, frequencies)
        gap = hypothesis.length - other.length
        total += _similarity(hypothesis, other, clipped=True) * math.exp(-(gap**2) / (2 * _SIGMA**2))
    return 10 * total / len(references)


def cider(candidate: Sequence[str], references: Sequence[Sequence[str]], frequencies: DocumentFrequencies) -> float:
    """CIDEr of one image, in 0..10: ten times the mean cosine of tf-idf vectors (equation 3)."""
    hypothesis = _vector(candidate, frequencies)
    vectors = (_vector(reference, frequencies) for reference in references)
    return 10 * sum(_similarity(hypothesis, other, clipped=False) for other in vectors) / len(references)


def _vector(tokens: Sequence[str], frequencies: DocumentFrequencies) -> _Vector:
    weights = {ngram: count * frequencies.weight(ngram) for ngram, count in count_ngrams(tokens).items()}
    squares = [0.0] * LONGEST
    for ngram, weight in weights.items():
        squares[len(ngram) - 1] += weight * weight
    return _Vector(weights, tuple(map(math.sqrt, squares)), length=max(0, len(tokens) - 1))


def _similarity(hypothesis: _Vector, reference: _Vector, *, clipped: bool) -> float:
    """The mean over the lengths of n-grams of the cosine (equation 2) or of its clipped variant."""
    products = [0.0] * LONGEST
    for ngram, weight in hypothesis.weights.items():
        other = reference.weights.get(ngram)
        if other is not None:
            products[len(ngram) - 1] += (min(weight, other) if clipped else weight) * other
    norms = zip(hypothesis.norms, reference.norms, strict=True)
    return sum(product / (a * b) for product, (a, b) in zip(products, norms, strict=True) if a * b > 0) / LONGEST
