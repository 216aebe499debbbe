"""CIDEr-D, which COCO reports as "CIDEr", and plain CIDEr.

Sources: Vedantam et al., "CIDEr: Consensus-based Image Description Evaluation", 2015, equations 1-3 for CIDEr and the
section on gameability for CIDEr-D; pycocoevalcap 1.2 and the `cider` package of the self-critical codes, to whose
values both are equal.
"""

from collections.abc import Hashable, Sequence

import numpy as np

from legenda.metrics.document_frequencies import DocumentFrequencies, inverse_document_frequencies
from legenda.metrics.ngrams import LONGEST, Bag, Corpus, Floats, Integers, Overlap, Pairs, count_documents

SIGMA = 6.0


def cider_d(
    candidate: Sequence[Hashable], references: Sequence[Sequence[Hashable]], frequencies: DocumentFrequencies
) -> float:
    """CIDEr-D of one image, in 0..10: n-gram similarity with counts clipped at the reference's and unequal lengths
    punished by a Gaussian of sigma 6. Lengths are numbers of bigrams, as in the reference program.
    """
    return float(cider_scores(Corpus.from_tokens([candidate], [references]), frequencies)[0])


def cider(
    candidate: Sequence[Hashable], references: Sequence[Sequence[Hashable]], frequencies: DocumentFrequencies
) -> float:
    """CIDEr of one image, in 0..10: ten times the mean cosine of tf-idf vectors (equation 3)."""
    return float(cider_scores(Corpus.from_tokens([candidate], [references]), frequencies, clipped=False)[0])


def cider_scores(corpus: Corpus, frequencies: DocumentFrequencies | None = None, *, clipped: bool = True) -> Floats:
    """CIDEr-D of every image, in 0..10, or with `clipped=False` plain CIDEr.

    Without `frequencies` the references themselves give them, an image being a document.
    """
    if frequencies is None:
        documents = len(corpus.candidate_lengths)
        images = corpus.pairs.candidates()
        counts = [
            count_documents(bag.numbers, images[bag.owners()], known)
            for bag, known in zip(corpus.references, corpus.table.sizes(), strict=True)
        ]
    else:
        documents = frequencies.documents
        counts = frequencies.counts_of(corpus.table, corpus.words)
    weights = [inverse_document_frequencies(each, documents) for each in counts]
    return similarities(
        corpus.candidates,
        corpus.references,
        corpus.overlaps,
        corpus.pairs,
        [weight[bag.numbers] for weight, bag in zip(weights, corpus.candidates, strict=True)],
        [weight[bag.numbers] for weight, bag in zip(weights, corpus.references, strict=True)],
        corpus.candidate_lengths,
        corpus.reference_lengths,
        clipped=clipped,
    )


def similarities(
    candidates: Sequence[Bag],
    references: Sequence[Bag],
    overlaps: Sequence[Overlap],
    pairs: Pairs,
    weights: Sequence[Floats],
    reference_weights: Sequence[Floats],
    lengths: Integers,
    reference_lengths: Integers,
    *,
    clipped: bool = True,
) -> Floats:
    """CIDEr(-D) of every candidate from what is counted; the weights are the inverse document frequencies of the bags'
    n-grams.
    """
    mine, theirs = pairs.candidates(), pairs.references()
    totals = np.zeros(len(mine))
    parts = zip(candidates, references, overlaps, weights, reference_weights, strict=True)
    for bag, other, found, weight, reference_weight in parts:
        vector = bag.counts * weight
        hits = np.flatnonzero(found.counts)
        entries = found.entries[hits]
        first, second = vector[entries], found.counts[hits] * weight[entries]
        products = (np.minimum(first, second) if clipped else first) * second
        norms = _norms(bag, vector)[mine] * _norms(other, other.counts * reference_weight)[theirs]
        sums = np.bincount(found.pairs[hits], products, minlength=len(mine))
        totals += np.divide(sums, norms, out=np.zeros(len(mine)), where=norms > 0)
    if clipped:
        bigrams, reference_bigrams = np.maximum(0, lengths - 1), np.maximum(0, reference_lengths - 1)
        totals *= np.exp(-((bigrams[mine] - reference_bigrams[theirs]) ** 2) / (2 * SIGMA**2))
    sums = np.bincount(mine, totals, minlength=len(lengths))
    return 10 / LONGEST * sums / np.diff(pairs.starts)


def _norms(bag: Bag, vector: Floats) -> Floats:
    return np.sqrt(np.bincount(bag.owners(), vector * vector, minlength=len(bag.starts) - 1))
