"""CIDEr-D, which COCO reports as "CIDEr", and plain CIDEr.

Sources: Vedantam et al., "CIDEr: Consensus-based Image Description Evaluation", 2015, equations 1-3 for CIDEr and the
section on gameability for CIDEr-D; pycocoevalcap 1.2 and the `cider` package of the self-critical codes, to whose
values both are equal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from legenda.io import load_arrays
from legenda.metrics.metric import CaptionSet, Metric
from legenda.run_folder import ASSETS, PACKAGED, VOCABULARY
from legenda.text import Vocabulary
from legenda.text.ngrams import MAX_ORDER, Comparison, DocumentFrequencies, Tokens

_SIGMA = 6.0
COCO = "coco"
"""The name of the document frequencies that the package holds."""


def coco_frequencies() -> DocumentFrequencies:
    """Return the document frequencies of COCO's training images as packaged: of n-grams that at least 8 images have.

    An n-gram that is not among them counts as that of one image. Raise CheckpointError for a damaged file.
    """
    folder = ASSETS / PACKAGED
    words = Vocabulary.load(folder / VOCABULARY).tokens
    stored = load_arrays(folder / "frequencies.safetensors", "install legenda again")
    return DocumentFrequencies.from_counts(words, stored["ngrams"], stored["counts"], int(stored["documents"][0]))


def consensus(words: Comparison, df: DocumentFrequencies | None = None, *, clipped: bool = True) -> list[float]:
    """Return CIDEr-D, or with `clipped=False` CIDEr, of each of K candidates, in 0..10.

    df: document frequencies; by default the references of an image are a document.
    """
    ends = [*words.begins[1:].tolist(), len(words.candidates)]
    values = similarities(words, df, clipped=clipped).tolist()
    groups = [values[begin:end] for begin, end in zip(words.begins.tolist(), ends, strict=True)]
    return [10 / MAX_ORDER * math.fsum(group) / len(group) for group in groups]  # in any order of the references


def similarities(words: Comparison, df: DocumentFrequencies | None = None, *, clipped: bool = True) -> np.ndarray:
    """Return the sum over the lengths of n-grams of the cosine of both captions' tf-idf vectors for each pair, `(P,)`.

    clipped: as in CIDEr-D, with counts clipped at the reference's and a penalty for another length.
    """
    table = words.ngrams
    entries = table.counts * words.inverse_frequencies(df)[table.ngrams]
    orders = table.orders[table.ngrams]
    norms = np.sqrt(_sums(table.captions, orders, entries * entries, len(table.lengths)))
    pairs, mine, theirs = words.shared
    clip = np.minimum(entries[mine], entries[theirs]) if clipped else entries[mine]
    products = _sums(pairs, orders[mine], clip * entries[theirs], len(words.candidates))
    scales = norms[words.candidates] * norms[words.references]
    cosines = np.divide(products, scales, out=np.zeros_like(products), where=scales > 0)
    values = np.array([sum(row) for row in cosines.tolist()])
    if not clipped:
        return values
    bigrams = (table.lengths - 1).clip(min=0)
    gaps = np.abs(bigrams[words.candidates] - bigrams[words.references])
    return values * np.array([math.exp(-(gap**2) / (2 * _SIGMA**2)) for gap in range(gaps.max() + 1)])[gaps]


def _sums(rows: np.ndarray, orders: np.ndarray, values: np.ndarray, count: int) -> np.ndarray:
    """Return the sums of values by row and length of n-grams, in their order, `(count, MAX_ORDER)`."""
    sums = np.bincount(rows * MAX_ORDER + orders, values, minlength=count * MAX_ORDER)
    return sums.reshape(count, MAX_ORDER).astype(np.float64)  # sums of no values are integers


def cider_d(candidate: Tokens, references: Sequence[Tokens], df: DocumentFrequencies) -> float:
    """Return CIDEr-D of one image, in 0..10.

    Counts are clipped at the reference's, and differences in length are penalized by a Gaussian with sigma 6. Lengths
    are numbers of bigrams, as in the reference program.
    """
    return consensus(Comparison([candidate], [references]), df)[0]


def cider(candidate: Tokens, references: Sequence[Tokens], df: DocumentFrequencies) -> float:
    """Return CIDEr of one image, in 0..10: ten times the mean cosine similarity of tf-idf vectors (equation 3)."""
    return consensus(Comparison([candidate], [references]), df, clipped=False)[0]


def _measure(captions: CaptionSet, *, clipped: bool = True) -> list[float]:
    return consensus(captions.words, captions.df, clipped=clipped)


CIDER_D = Metric(
    _measure,
    "similarity to the references with rare n-grams weighted more; 0 to 10, often reported times 100",
    needs_document_frequencies=True,
)
CIDER = Metric(
    partial(_measure, clipped=False),
    "CIDEr-D without its clipping and its penalty for other lengths; 0 to 10",
    needs_document_frequencies=True,
    by_default=False,
)
