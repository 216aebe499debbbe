"""CIDEr-D, which COCO reports as "CIDEr", and plain CIDEr.

Sources: Vedantam et al., "CIDEr: Consensus-based Image Description Evaluation", 2015, equations 1-3 for CIDEr and the
section on gameability for CIDEr-D; pycocoevalcap 1.2 and the `cider` package of the self-critical codes, to whose
values both are equal.
"""

from collections.abc import Hashable, Sequence

import numpy as np

from legenda.metrics.document_frequencies import DocumentFrequencies, inverse_document_frequencies
from legenda.metrics.ngrams import MAX_ORDER, Bag, Corpus, Floats, NgramCounts, count_documents

SIGMA = 6.0


def cider_d(candidate: Sequence[Hashable], references: Sequence[Sequence[Hashable]], df: DocumentFrequencies) -> float:
    """Return CIDEr-D of one image, in 0..10.

    Counts are clipped at the reference's, and differences in length are penalized by a Gaussian with sigma 6. Lengths
    are numbers of bigrams, as in the reference program.
    """
    return float(cider_scores(Corpus.from_tokens([candidate], [references]), df)[0])


def cider(candidate: Sequence[Hashable], references: Sequence[Sequence[Hashable]], df: DocumentFrequencies) -> float:
    """Return CIDEr of one image, in 0..10: ten times the mean cosine similarity of tf-idf vectors (equation 3)."""
    return float(cider_scores(Corpus.from_tokens([candidate], [references]), df, clipped=False)[0])


def cider_scores(corpus: Corpus, df: DocumentFrequencies | None = None, *, clipped: bool = True) -> Floats:
    """Return CIDEr-D of each image, in 0..10, or with `clipped=False` plain CIDEr.

    df: the document frequencies; by default those of the corpus' references, where an image is a document.
    """
    if df is None:
        documents = len(corpus.candidate_lengths)
        images = corpus.pairs.candidate_indices()
        counts = [
            count_documents(bag.numbers, images[bag.caption_indices()], num_ngrams)
            for bag, num_ngrams in zip(corpus.references, corpus.table.sizes(), strict=True)
        ]
    else:
        documents = df.documents
        counts = df.counts_of(corpus.table, corpus.token_ids)
    return similarities(corpus, [inverse_document_frequencies(each, documents) for each in counts], clipped=clipped)


def similarities(counts: NgramCounts, weights: Sequence[Floats], *, clipped: bool = True) -> Floats:
    """Return CIDEr-D or CIDEr of each candidate.

    weights: the inverse document frequencies of the n-grams of each length, of which the last is also that of n-grams
    with higher numbers.
    """
    owner, reference = counts.pairs.candidate_indices(), counts.pairs.reference_indices()
    totals = np.zeros(len(owner))
    for bag, other, found, weight in zip(counts.candidates, counts.references, counts.overlaps, weights, strict=True):
        hits = np.flatnonzero(found.counts)
        entries = found.entries[hits]
        weight_of_hit = weight[np.minimum(bag.numbers[entries], len(weight) - 1)]
        first, second = bag.counts[entries] * weight_of_hit, found.counts[hits] * weight_of_hit
        products = (np.minimum(first, second) if clipped else first) * second
        norms = norms_of(bag, weight)[owner] * norms_of(other, weight)[reference]
        sums = np.bincount(found.pairs[hits], products, minlength=len(owner))
        totals += np.divide(sums, norms, out=np.zeros(len(owner)), where=norms > 0)
    if clipped:
        bigrams = np.maximum(0, counts.candidate_lengths - 1)[owner]
        reference_bigrams = np.maximum(0, counts.reference_lengths - 1)[reference]
        totals *= np.exp(-((bigrams - reference_bigrams) ** 2) / (2 * SIGMA**2))
    sums = np.bincount(owner, totals, minlength=len(counts.candidate_lengths))
    return 10 / MAX_ORDER * sums / np.diff(counts.pairs.starts)


def norms_of(bag: Bag, weights: Floats) -> Floats:
    """Return the norm of the tf-idf vector of each caption, given the weights of n-grams by number."""
    squares = (bag.counts * weights[np.minimum(bag.numbers, len(weights) - 1)]) ** 2
    return np.sqrt(np.bincount(bag.caption_indices(), squares, minlength=len(bag.starts) - 1))
