"""How unlike one another captions are, and how good the best of several is.

Sources: distinct n-grams after Li et al., "A Diversity-Promoting Objective Function for Neural Conversation Models",
2016, and, within each image, Shetty et al., "Speaking the Same Language: Matching Machine to Human Captions by
Adversarial Training", 2017, which also has mBLEU, vocabulary and novelty; self-CIDEr after Wang and Chan, "Describing
like Humans: on Diversity in Image Captioning", 2019.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np

from legenda.errors import UserError
from legenda.metrics.bleu import bleu
from legenda.metrics.cider import DocumentFrequencies
from legenda.metrics.evaluation import References, as_tokens, evaluate, resolve_document_frequencies
from legenda.metrics.ngrams import MAX_ORDER, count_ngrams

Samples = Mapping[Any, Sequence[str]]


@dataclass(frozen=True)
class Diversity:
    """The diversity of several captions an image; all but `mbleu` are greater for more diverse captions.

    distinct: for n of 1 to 4, the different n-grams of an image's captions over their words, the mean over images.
    mbleu: BLEU-1 to BLEU-4 of a caption with the image's others as references: the corpus score of all first captions,
        of all second ones and so on, the mean of those.
    self_cider: per image, minus the logarithm, to the base of the number of captions, of the greatest singular value's
        share in the sum of all; they are the square roots of the eigenvalues of the matrix of CIDEr between captions.
        0 where all are alike, 1 where no two share an n-gram. The mean over images.
    per_image: "distinct-1" to "distinct-4" and "self-CIDEr" of each image.
    documents, df: the number of documents of self-CIDEr's document frequencies, and what those were.
    """

    distinct: tuple[float, ...]
    mbleu: tuple[float, ...]
    self_cider: float
    per_image: dict[Any, dict[str, float]]
    documents: int
    df: str


def measure_diversity(
    samples: Samples, *, df: DocumentFrequencies | References | None = None, tokenized: bool = False
) -> Diversity:
    """Measures the diversity of two or more captions of each image, as raw text or, with `tokenized`, as tokens.

    df: where self-CIDEr takes its document frequencies from, as in `evaluate`; the authors take the references of the
        data set. With None it is the samples themselves.
    Raises UserError for an image with fewer than two captions and for what is not text.
    """
    groups = [as_tokens(captions, tokenized=tokenized) for captions in _checked(samples).values()]
    frequencies, source = resolve_document_frequencies(df, groups, tokenized=tokenized)
    distinct = [_distinct(group) for group in groups]
    alike = [_self_cider(group, frequencies) for group in groups]
    per_image = {
        image: {f"distinct-{n}": share for n, share in enumerate(shares, start=1)} | {"self-CIDEr": spread}
        for image, shares, spread in zip(samples, distinct, alike, strict=True)
    }
    means = tuple(fmean(column) for column in zip(*distinct, strict=True))
    source = "the samples" if df is None else source
    return Diversity(means, _mbleu(groups), fmean(alike), per_image, frequencies.documents, source)


def vocabulary_size(captions: Iterable[str], *, tokenized: bool = False) -> int:
    """How many different words captions have."""
    return len({word for words in as_tokens(captions, tokenized=tokenized) for word in words})


def novel_fraction(captions: Iterable[str], training: Iterable[str], *, tokenized: bool = False) -> float:
    """The share of captions, in 0..1, whose words in order are no caption of the training set."""
    known = {tuple(words) for words in as_tokens(training, tokenized=tokenized)}
    made = [tuple(words) for words in as_tokens(captions, tokenized=tokenized)]
    if not made:
        raise UserError("there are no captions to look for in the training set; give at least one")
    return sum(words not in known for words in made) / len(made)


@dataclass(frozen=True)
class Oracle:
    """A metric over several captions an image: the mean over images of each one's best and of each one's mean caption.

    per_image: the score of every caption of every image.
    """

    best: float
    mean: float
    per_image: dict[Any, list[float]]


def score_oracle(
    samples: Samples,
    references: References,
    *,
    metrics: str | Sequence[str] = "CIDEr-D",
    df: DocumentFrequencies | References | None = None,
    tokenized: bool = False,
) -> dict[str, Oracle]:
    """Scores each of an image's captions alone with metrics of `evaluate`, and looks for the best one by each.

    Every image has the same number of captions. For BLEU and METEOR the scores are those of single images, whose mean
    is not the corpus' score. A metric that cannot be computed is left out, as "auto" allows.
    Raises UserError for uneven numbers of captions, and as `evaluate` does.
    """
    numbers = {len(captions) for captions in _checked(samples, least=1).values()}
    if len(numbers) != 1:
        raise UserError(f"the images have from {min(numbers)} to {max(numbers)} captions; give each the same number")
    rounds = [
        evaluate(
            {image: captions[place] for image, captions in samples.items()},
            references,
            metrics=metrics,
            df=df,
            tokenized=tokenized,
        )
        for place in range(numbers.pop())
    ]
    found: dict[str, Oracle] = {}
    for name in rounds[0].corpus:
        if any(scores.corpus[name] is None for scores in rounds):
            continue
        each = {image: [scores.per_image[image][name] or 0.0 for scores in rounds] for image in samples}
        found[name] = Oracle(fmean(map(max, each.values())), fmean(map(fmean, each.values())), each)
    return found


def _distinct(group: Sequence[Sequence[str]]) -> list[float]:
    words = sum(map(len, group))
    different = {ngram for caption in group for ngram in count_ngrams(caption)}
    return [sum(len(ngram) == n for ngram in different) / max(1, words) for n in range(1, MAX_ORDER + 1)]


def _mbleu(groups: Sequence[Sequence[Sequence[str]]]) -> tuple[float, ...]:
    rounds = []
    for place in range(max(map(len, groups))):
        full = [group for group in groups if len(group) > place]
        others = [[*group[:place], *group[place + 1 :]] for group in full]
        rounds.append(bleu([group[place] for group in full], others)[0])
    return tuple(fmean(column) for column in zip(*rounds, strict=True))


def _self_cider(group: Sequence[Sequence[str]], frequencies: DocumentFrequencies) -> float:
    kernel = np.zeros((len(group), len(group)))
    counted = [count_ngrams(caption) for caption in group]
    for n in range(1, MAX_ORDER + 1):
        columns = sorted({ngram for counts in counted for ngram in counts if len(ngram) == n})
        weights = np.array([frequencies.weight(ngram) for ngram in columns])
        vectors = np.array([[counts[ngram] for ngram in columns] for counts in counted]) * weights
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        unit = np.divide(vectors, norms, out=np.zeros_like(vectors), where=norms > 0)
        kernel += unit @ unit.T / MAX_ORDER
    singular = np.sqrt(np.clip(np.linalg.eigvalsh(kernel), 0, None))
    total = singular.sum()
    # Captions without a weighted word are alike.
    return float(-np.log(singular[-1] / total) / np.log(len(group))) + 0.0 if total > 0 else 0.0


def _checked(samples: Samples, *, least: int = 2) -> Samples:
    if not samples:
        raise UserError("there are no captions to measure; give several for each image")
    for image, captions in samples.items():
        if isinstance(captions, str) or not isinstance(captions, Sequence) or len(captions) < least:
            raise UserError(f"image {image!r} needs a list of at least {least} captions")
        if wrong := [caption for caption in captions if not isinstance(caption, str)]:
            raise UserError(f"a caption of image {image!r} is {type(wrong[0]).__name__}; give captions as text")
    return samples
