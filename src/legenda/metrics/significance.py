"""How sure a score is, and whether one set of captions is really better than another.

Everything is resampled by images, from what each image adds to the scores, so that nothing is scored twice. Document
frequencies stay as they are.

Sources: Efron and Tibshirani, "An Introduction to the Bootstrap", 1993, for percentile intervals; Koehn, "Statistical
Significance Tests for Machine Translation Evaluation", 2004, for the paired bootstrap; Noreen, "Computer-Intensive
Methods for Testing Hypotheses", 1989, and Riezler and Maxwell, "On Some Pitfalls in Automatic Evaluation and
Significance Testing for MT", 2005, for approximate randomisation, which gives p.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from legenda.errors import UserError
from legenda.metrics.evaluation import BLEU, Scores

_AT_ONCE = 4_000_000  # weights held in memory at a time
_TINY, _SMALL = 1e-15, 1e-9  # BLEU's, see bleu.py

# METEOR 1.5's parameters for English: of the four kinds of match, of content and function words, of precision and
# recall, and of the penalty for fragments.
_WEIGHTS = np.array([1.0, 0.6, 0.8, 0.6])
_DELTA, _ALPHA, _BETA, _GAMMA = 0.75, 0.85, 0.20, 0.60


@dataclass(frozen=True)
class Interval:
    """The interval that holds a score with the confidence asked for."""

    low: float
    high: float


@dataclass(frozen=True)
class Difference:
    """A first set's score minus a second one's, its interval, and p.

    p: how often chance alone, swapping the two captions of each image or not, makes a difference as great, in 0..1.
    """

    difference: float
    low: float
    high: float
    p: float


@dataclass(frozen=True)
class _Part:
    """What a metric sums over images, (images, parts), and its score of such sums, (..., parts) to (...)."""

    sums: np.ndarray
    score: Callable[[np.ndarray], np.ndarray]


def intervals(
    scores: Scores, *, resamples: int = 1000, confidence: float = 0.95, seed: int = 0
) -> dict[str, Interval | None]:
    """Bootstrap intervals of the corpus' scores: percentiles over `resamples` draws of as many images, with repeats.

    A metric that was not computed has None. Raises UserError for settings out of range.
    """
    _check_settings(resamples, confidence)
    parts = _parts(scores)
    drawn = {name: np.empty(resamples) for name in parts}
    for rows, weights in _bootstrap(len(scores.per_image), resamples, seed):
        for name, part in parts.items():
            drawn[name][rows] = part.score(weights @ part.sums)
    return {name: _interval(drawn[name], confidence) if name in parts else None for name in scores.corpus}


def compare(
    first: Scores, second: Scores, *, resamples: int = 1000, confidence: float = 0.95, seed: int = 0
) -> dict[str, Difference | None]:
    """Whether the first captions score otherwise than the second ones, image by image the same.

    The interval is a paired bootstrap's: both sets are scored on the same draws of images. p is the two-sided one of
    approximate randomisation: in each of `resamples` rounds every image's two captions change sides or stay, by a fair
    coin; p is the share of rounds, the real one counted among them, whose difference is at least as great. It is not
    corrected for looking at several metrics.

    Raises UserError where the two have other images, metrics or document frequencies, and for settings out of range.
    """
    _check_settings(resamples, confidence)
    if set(first.per_image) != set(second.per_image):
        raise UserError("the two sets of captions are of different images; score both on the same ones")
    if (first.documents, first.df) != (second.documents, second.df):
        raise UserError("the two sets were scored with other document frequencies; score both against the same")
    order = {image: place for place, image in enumerate(second.per_image)}
    places = np.array([order[image] for image in first.per_image])
    ours, theirs = _parts(first), _parts(second)
    found: dict[str, Difference | None] = dict.fromkeys(first.corpus)
    names = [name for name in ours if name in theirs]
    moved = {name: theirs[name].sums[places] for name in names}

    drawn = {name: np.empty(resamples) for name in names}
    for rows, weights in _bootstrap(len(places), resamples, seed):
        for name in names:
            score = ours[name].score
            drawn[name][rows] = score(weights @ ours[name].sums) - score(weights @ moved[name])
    swapped = {name: np.empty(resamples) for name in names}
    for rows, coins in _coins(len(places), resamples, seed):
        for name in names:
            score, a, b = ours[name].score, ours[name].sums, moved[name]
            change = coins @ (b - a)
            swapped[name][rows] = score(a.sum(0) + change) - score(b.sum(0) - change)
    for name in names:
        score = ours[name].score
        real = float(score(ours[name].sums.sum(0)) - score(moved[name].sum(0)))
        # Sums in another order differ in the last digits; a round that swaps like with like is as great.
        as_great = int((np.abs(swapped[name]) >= abs(real) - 1e-12).sum())
        interval = _interval(drawn[name], confidence)
        found[name] = Difference(real, interval.low, interval.high, (1 + as_great) / (1 + resamples))
    return found


def _check_settings(resamples: int, confidence: float) -> None:
    if resamples < 1:
        raise UserError(f"resamples must be at least 1, not {resamples}")
    if not 0 < confidence < 1:
        raise UserError(f"confidence must lie between 0 and 1, not at {confidence}")


def _interval(drawn: np.ndarray, confidence: float) -> Interval:
    low, high = np.nanquantile(drawn, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(float(low), float(high))


def _chunks(images: int, resamples: int) -> Iterator[slice]:
    rows = max(1, _AT_ONCE // images)
    return (slice(first, min(first + rows, resamples)) for first in range(0, resamples, rows))


def _bootstrap(images: int, resamples: int, seed: int) -> Iterator[tuple[slice, np.ndarray]]:
    """How often each image is drawn, (rows, images): as many draws as images, each image as likely as the next."""
    generator = np.random.default_rng([seed, 0])
    for rows in _chunks(images, resamples):
        count = rows.stop - rows.start
        yield rows, generator.multinomial(images, np.full(images, 1 / images), size=count).astype(float)


def _coins(images: int, resamples: int, seed: int) -> Iterator[tuple[slice, np.ndarray]]:
    generator = np.random.default_rng([seed, 1])
    for rows in _chunks(images, resamples):
        yield rows, generator.integers(0, 2, (rows.stop - rows.start, images)).astype(float)


def _parts(scores: Scores) -> dict[str, _Part]:
    parts: dict[str, _Part] = {}
    for name, value in scores.corpus.items():
        if value is None:
            continue
        if name in BLEU:
            n = BLEU.index(name) + 1
            parts[name] = _Part(np.array(scores.counts["BLEU"], dtype=float), lambda sums, n=n: _bleu(sums, n))
        elif name == "METEOR":
            parts[name] = _Part(np.array(scores.counts["METEOR"]), _meteor)
        else:
            known = [values[name] for values in scores.per_image.values()]
            sums = np.array([(0.0, 0.0) if value is None else (value, 1.0) for value in known])
            parts[name] = _Part(sums, lambda sums: _ratio(sums[..., 0], sums[..., 1]))
    return parts


def _bleu(sums: np.ndarray, n: int) -> np.ndarray:
    """BLEU-n of sums: matches and possible matches of 1- to 4-grams, length, length of references."""
    correct, possible = sums[..., :n], sums[..., 4 : 4 + n]
    ratio = (sums[..., 8] + _TINY) / (sums[..., 9] + _SMALL)
    brevity = np.exp(np.minimum(0.0, 1 - 1 / ratio))
    return np.exp(np.log((correct + _TINY) / (possible + _SMALL)).mean(-1)) * brevity


def _meteor(sums: np.ndarray) -> np.ndarray:
    """METEOR of sums of the program's counts: lengths and function words of caption and reference, then for each of
    four kinds of match the content words and function words of both, then chunks and matched words of both.
    """
    kinds = sums[..., 4:20].reshape(*sums.shape[:-1], 4, 4)
    shares = []
    for side in (0, 1):
        matched = _DELTA * kinds[..., side] + (1 - _DELTA) * kinds[..., 2 + side]
        function = sums[..., 2 + side]
        words = _DELTA * (sums[..., side] - function) + (1 - _DELTA) * function
        shares.append(_ratio((_WEIGHTS * matched).sum(-1), words))
    precision, recall = shares
    mean = _ratio(precision * recall, _ALPHA * precision + (1 - _ALPHA) * recall)
    chunks, matches = sums[..., 20], (sums[..., 21] + sums[..., 22]) / 2
    # One chunk that is the whole of both captions is no fragment.
    whole = (chunks == 1) & (sums[..., 21] == sums[..., 0]) & (sums[..., 22] == sums[..., 1])
    return mean * (1 - _GAMMA * np.where(whole, 0.0, _ratio(chunks, matches)) ** _BETA)


def _ratio(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    """The quotient, and 0 where there is nothing below."""
    return np.divide(above, below, out=np.zeros(np.broadcast(above, below).shape), where=below > 0)
