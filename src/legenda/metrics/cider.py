"""CIDEr-D, which COCO reports as "CIDEr", and plain CIDEr.

Sources: Vedantam et al., "CIDEr: Consensus-based Image Description Evaluation", 2015, equations 1-3 for CIDEr and the
section on gameability for CIDEr-D; pycocoevalcap 1.2 and the `cider` package of the self-critical codes, to whose
values both are equal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from legenda.arrays import load_arrays
from legenda.metrics.metric import CaptionSet, Metric
from legenda.run_folder import ASSETS, PACKAGED, VOCABULARY
from legenda.text import Vocabulary
from legenda.text.ngrams import MAX_ORDER, DocumentFrequencies, TfIdf, Tokens

SIGMA = 6.0
COCO = "coco"
"""The name of the document frequencies that the package holds."""


def coco_frequencies() -> DocumentFrequencies:
    """Return the document frequencies of COCO's training images as packaged: of n-grams that at least 8 images have.

    An n-gram that is not among them counts as that of one image. Raise CheckpointError for a damaged file.
    """
    folder = ASSETS / PACKAGED
    words = np.array([*Vocabulary.load(folder / VOCABULARY).tokens, ""], object)
    stored = load_arrays(folder / "frequencies.safetensors", "install legenda again")
    rows = words[stored["ngrams"]].tolist()
    grams = (tuple(row[: row.index("")] if "" in row else row) for row in rows)
    return DocumentFrequencies(dict(zip(grams, stored["counts"].tolist(), strict=True)), int(stored["documents"][0]))


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
    return consensus(TfIdf.of(candidate, df.weight), [TfIdf.of(reference, df.weight) for reference in references])


def cider(candidate: Tokens, references: Sequence[Tokens], df: DocumentFrequencies) -> float:
    """Return CIDEr of one image, in 0..10: ten times the mean cosine similarity of tf-idf vectors (equation 3)."""
    vectors = [TfIdf.of(reference, df.weight) for reference in references]
    return consensus(TfIdf.of(candidate, df.weight), vectors, clipped=False)


def _measure(
    score: Callable[[Tokens, Sequence[Tokens], DocumentFrequencies], float], captions: CaptionSet
) -> list[float]:
    return [score(*image, captions.document_frequencies) for image in captions.words]


CIDER_D = Metric(
    partial(_measure, cider_d),
    "similarity to the references with rare n-grams weighted more; 0 to 10, often reported times 100",
    needs_document_frequencies=True,
)
CIDER = Metric(
    partial(_measure, cider),
    "CIDEr-D without its clipping and its penalty for other lengths; 0 to 10",
    needs_document_frequencies=True,
    by_default=False,
)
