"""CIDEr-D, which COCO reports as "CIDEr", and plain CIDEr.

Sources: Vedantam et al., "CIDEr: Consensus-based Image Description Evaluation", 2015, equations 1-3 for CIDEr and the
section on gameability for CIDEr-D; pycocoevalcap 1.2 and the `cider` package of the self-critical codes, to whose
values both are equal.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from legenda.arrays import load_arrays
from legenda.metrics.bleu import MAX_ORDER, Ngram, Tokens, ngrams
from legenda.run_folder import ASSETS, PACKAGED, VOCABULARY
from legenda.text import Vocabulary

SIGMA = 6.0
COCO = "coco"
"""The name of the document frequencies that the package holds."""


@dataclass(frozen=True)
class DocumentFrequencies:
    """The number of documents, out of `documents`, that contain each n-gram of one to four tokens.

    A document consists of all references of one image, or of one caption in some released codes. Tokens are strings or
    ids.
    """

    counts: Mapping[Ngram, int]
    documents: int

    @classmethod
    def from_references(cls, references: Iterable[Sequence[Tokens]]) -> DocumentFrequencies:
        """Count documents of tokenized references, given image by image.

        For captions as documents, as in the released codes of MD-SAN and M2, give each caption as a separate image.
        """
        counts: Counter[Ngram] = Counter()
        documents = 0
        for group in references:
            documents += 1
            counts.update({ngram for caption in group for ngram in ngrams(caption)})
        return cls(counts, documents)

    @classmethod
    def of_coco(cls) -> DocumentFrequencies:
        """Return those of COCO's training images as packaged: of the n-grams that at least 8 images have.

        An n-gram that is not among them counts as that of one image. Raise CheckpointError for a damaged file.
        """
        folder = ASSETS / PACKAGED
        words = np.array([*Vocabulary.load(folder / VOCABULARY).tokens, ""], object)
        stored = load_arrays(folder / "frequencies.safetensors", "install legenda again")
        rows = words[stored["ngrams"]].tolist()
        grams = (tuple(row[: row.index("")] if "" in row else row) for row in rows)
        return cls(dict(zip(grams, stored["counts"].tolist(), strict=True)), int(stored["documents"][0]))

    @cached_property
    def _log_documents(self) -> float:
        return math.log(self.documents)

    def weight(self, ngram: Ngram) -> float:
        """Return the inverse document frequency, log(documents / frequency), of an n-gram; a frequency of 0 is 1."""
        return self._log_documents - math.log(self.counts.get(ngram) or 1)


class TfIdf(NamedTuple):
    """The tf-idf vectors of a caption: their entries by n-gram, the norm for each length of n-grams, and its tokens."""

    values: dict[Ngram, float]
    norms: list[float]
    length: int

    @staticmethod
    def of(tokens: Tokens, df: DocumentFrequencies) -> TfIdf:
        """Return the vectors of a tokenized caption."""
        values = {ngram: count * df.weight(ngram) for ngram, count in Counter(ngrams(tokens)).items()}
        squares = [0.0] * MAX_ORDER
        for ngram, value in values.items():
            squares[len(ngram) - 1] += value * value
        return TfIdf(values, list(map(math.sqrt, squares)), len(tokens))


def consensus(candidate: TfIdf, references: Sequence[TfIdf], *, clipped: bool = True) -> float:
    """Return CIDEr-D, or with `clipped=False` CIDEr, of a caption's vectors, in 0..10."""
    similarities = []
    for reference in references:
        products = [0.0] * MAX_ORDER
        for ngram, value in candidate.values.items():
            other = reference.values.get(ngram)
            if other is not None:
                products[len(ngram) - 1] += (min(value, other) if clipped else value) * other
        norms = zip(candidate.norms, reference.norms, strict=True)
        similarity = sum(p / (a * b) for p, (a, b) in zip(products, norms, strict=True) if a * b > 0)
        if clipped:
            bigrams = max(0, candidate.length - 1) - max(0, reference.length - 1)
            similarity *= math.exp(-(bigrams**2) / (2 * SIGMA**2))
        similarities.append(similarity)
    return 10 / MAX_ORDER * math.fsum(similarities) / len(references)  # in any order of the references


def cider_d(candidate: Tokens, references: Sequence[Tokens], df: DocumentFrequencies) -> float:
    """Return CIDEr-D of one image, in 0..10.

    Counts are clipped at the reference's, and differences in length are penalized by a Gaussian with sigma 6. Lengths
    are numbers of bigrams, as in the reference program.
    """
    return consensus(TfIdf.of(candidate, df), [TfIdf.of(reference, df) for reference in references])


def cider(candidate: Tokens, references: Sequence[Tokens], df: DocumentFrequencies) -> float:
    """Return CIDEr of one image, in 0..10: ten times the mean cosine similarity of tf-idf vectors (equation 3)."""
    vectors = [TfIdf.of(reference, df) for reference in references]
    return consensus(TfIdf.of(candidate, df), vectors, clipped=False)
