"""Diversity of several captions of an image, and the score of the best one (oracle).

Sources: distinct n-grams after Li et al., "A Diversity-Promoting Objective Function for Neural Conversation Models",
2016, and, within each image, Shetty et al., "Speaking the Same Language: Matching Machine to Human Captions by
Adversarial Training", 2017, which also has mBLEU, vocabulary and novelty; self-CIDEr after Wang and Chan, "Describing
like Humans: on Diversity in Image Captioning", 2019.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Generic

import numpy as np

from legenda.errors import DataError
from legenda.metrics.bleu import bleu
from legenda.metrics.cider import similarities
from legenda.metrics.evaluation import Documents, Image, References, as_tokens, evaluate, resolve_document_frequencies
from legenda.text.ngrams import MAX_ORDER, Comparison, DocumentFrequencies, ngrams

Samples = Mapping[Image, Sequence[str]]


@dataclass(frozen=True)
class Diversity(Generic[Image]):
    """The diversity of several captions an image; higher means more diverse except for `mbleu`.

    distinct: for n of 1 to 4, the number of distinct n-grams of an image's captions divided by their number of words;
        the mean over images.
    mbleu: BLEU-1 to BLEU-4 of captions with the image's other captions as references: the mean of the corpus scores of
        all first captions, all second captions and so on.
    self_cider: minus the logarithm, to the base of the number of captions, of the largest singular value divided by the
        sum of singular values; these are the square roots of the eigenvalues of the matrix of CIDEr between an image's
        captions. 0 where all captions are equal, 1 where no two share an n-gram. The mean over images.
    per_image: "distinct-1" to "distinct-4" and "self-CIDEr" of each image.
    documents, df: the number of documents of self-CIDEr's document frequencies, and their source.
    """

    distinct: tuple[float, ...]
    mbleu: tuple[float, ...]
    self_cider: float
    per_image: dict[Image, dict[str, float]]
    documents: int
    df: str


def measure_diversity(samples: Samples[Image], *, df: Documents | None = None) -> Diversity[Image]:
    """Return the diversity of two or more captions of each image, as raw text.

    df: the source of self-CIDEr's document frequencies, as in `evaluate`; the authors use the references of the data
        set, and None uses the samples.
    Raise DataError for an image with fewer than two captions and for captions that are not text.
    """
    groups = [as_tokens(captions) for captions in _checked(samples).values()]
    frequencies, source = resolve_document_frequencies(df, groups)
    distinct = [_distinct(group) for group in groups]
    self_ciders = [_self_cider(group, frequencies) for group in groups]
    per_image = {
        image: {f"distinct-{n}": ratio for n, ratio in enumerate(ratios, start=1)} | {"self-CIDEr": self_cider}
        for image, ratios, self_cider in zip(samples, distinct, self_ciders, strict=True)
    }
    means = tuple(fmean(column) for column in zip(*distinct, strict=True))
    source = "the samples" if df is None else source
    return Diversity(means, _mbleu(groups), fmean(self_ciders), per_image, frequencies.documents, source)


def vocabulary_size(captions: Iterable[str]) -> int:
    """Return the number of distinct words of captions."""
    return len({word for words in as_tokens(captions) for word in words})


def novel_fraction(captions: Iterable[str], training: Iterable[str]) -> float:
    """Return the fraction of captions, in 0..1, whose token sequences do not occur in the training set."""
    known = {tuple(words) for words in as_tokens(training)}
    generated = [tuple(words) for words in as_tokens(captions)]
    if not generated:
        raise DataError("there are no captions to compare with the training set; give at least one")
    return sum(words not in known for words in generated) / len(generated)


@dataclass(frozen=True)
class Oracle(Generic[Image]):
    """A metric of several captions an image: the means over images of the best and of the mean score.

    per_image: the scores of all captions of each image.
    """

    best: float
    mean: float
    per_image: dict[Image, list[float]]


def score_oracle(
    samples: Samples[Image],
    references: References[Image],
    *,
    metrics: str | Sequence[str] = "CIDEr-D",
    df: Documents | None = None,
    spice_jars: str | Path | None = None,
) -> dict[str, Oracle]:
    """Score each of an image's captions separately with metrics of `evaluate`, and find the best one by each metric.

    All images need the same number of captions. BLEU and METEOR are computed for single images, so that their mean is
    not the corpus score. With "auto", metrics that cannot be computed are omitted.
    Raise DataError for unequal numbers of captions, and the errors of `evaluate`.
    """
    numbers = {len(captions) for captions in _checked(samples, least=1).values()}
    if len(numbers) != 1:
        raise DataError(f"the images have from {min(numbers)} to {max(numbers)} captions; give each the same number")
    columns = ({image: captions[index] for image, captions in samples.items()} for index in range(numbers.pop()))
    rounds = [evaluate(column, references, metrics=metrics, df=df, spice_jars=spice_jars) for column in columns]
    oracles: dict[str, Oracle] = {}
    for name in rounds[0].corpus:
        if any(scores.corpus[name] is None for scores in rounds):
            continue
        values = {image: [scores.per_image[image][name] or 0.0 for scores in rounds] for image in samples}
        oracles[name] = Oracle(fmean(map(max, values.values())), fmean(map(fmean, values.values())), values)
    return oracles


def _distinct(group: Sequence[Sequence[str]]) -> list[float]:
    words = sum(map(len, group))
    distinct = {ngram for caption in group for ngram in ngrams(caption)}
    return [sum(len(ngram) == n for ngram in distinct) / max(1, words) for n in range(1, MAX_ORDER + 1)]


def _mbleu(groups: Sequence[Sequence[Sequence[str]]]) -> tuple[float, ...]:
    rounds = []
    for index in range(max(map(len, groups))):
        remaining = [group for group in groups if len(group) > index]
        others = [[*group[:index], *group[index + 1 :]] for group in remaining]
        rounds.append(bleu([group[index] for group in remaining], others)[0])
    return tuple(fmean(column) for column in zip(*rounds, strict=True))


def _self_cider(group: Sequence[Sequence[str]], df: DocumentFrequencies) -> float:
    pairs = Comparison(group, [group], [0] * len(group))
    kernel = similarities(pairs, df, clipped=False).reshape(len(group), len(group)) / MAX_ORDER
    singular = np.sqrt(np.clip(np.linalg.eigvalsh(kernel), 0, None))
    total = singular.sum()
    # Captions without n-grams of positive weight are equal.
    return float(-np.log(singular[-1] / total) / np.log(len(group))) + 0.0 if total > 0 else 0.0


def _checked(samples: Samples[Image], *, least: int = 2) -> Samples[Image]:
    if not samples:
        raise DataError("there are no captions to measure; give several for each image")
    for image, captions in samples.items():
        if isinstance(captions, str) or not isinstance(captions, Sequence) or len(captions) < least:
            raise DataError(f"image {image!r} needs a list of at least {least} captions")
        if wrong := [caption for caption in captions if not isinstance(caption, str)]:
            raise DataError(f"a caption of image {image!r} is {type(wrong[0]).__name__}; give captions as text")
    return samples
