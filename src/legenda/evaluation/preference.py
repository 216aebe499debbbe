"""What judges prefer: shares of better, equal and worse with intervals, and the agreement of the judges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from legenda.errors import DataError
from legenda.evaluation.judgments import VERDICTS, Judgments, read_judgments
from legenda.evaluation.score_tables import preference_table
from legenda.evaluation.scoring import ScoringReport, as_dicts
from legenda.metrics.resampling import interval_of_ratio


def summarize_judgments(path: Path) -> ScoringReport:
    """Return how often each model's caption is better, the preference for the first, and Fleiss' kappa.

    The shares are those of AoANet's section 4.5. The preference is the share of the first minus that of the second.
    Intervals are those of a bootstrap over images. Raise DataError for a file without judgments.
    """
    judgments = read_judgments(path)
    counts = _count_verdicts(judgments)
    if not counts:
        raise DataError(f"{path} has no judgments yet; collect some with legenda judge")
    table = np.array(list(counts.values()), dtype=float)
    total = table.sum(1)
    columns = dict(zip((*VERDICTS, "preference"), (*table.T, table[:, 0] - table[:, 2]), strict=True))
    shares = {name: float(column.sum() / total.sum()) for name, column in columns.items()}
    bounds = {name: interval_of_ratio(column, total) for name, column in columns.items()}
    numbers = {name: int(columns[name].sum()) for name in VERDICTS}
    judges = sum(bool(given) for given in judgments.verdicts.values())
    identical = {pair.image for pair in judgments.pairs if pair.identical} & counts.keys()
    unasked = sum(sum(counts[image]) for image in identical)
    raters, images, kappa = _agreement([group for image, group in counts.items() if image not in identical])
    agreement = (
        "agreement: none; no image has two judges, or all verdicts are the same"
        if kappa is None
        else f"agreement: Fleiss' kappa {kappa:.3f} over {images} images with {raters} judges each"
    )
    return ScoringReport(
        [
            f"first: {judgments.first}\nsecond: {judgments.second}",
            f"{sum(numbers.values())} judgments of {len(counts)} images by {judges} judges; {unasked} of them are "
            f"equal unasked: the captions of {len(identical)} images are identical",
            preference_table(numbers, shares, bounds),
            agreement,
        ],
        {
            **{"first": judgments.first, "second": judgments.second, "judges": judges, "images": len(counts)},
            **{"judgments": numbers, "equal_unasked": unasked, "shares": shares, "intervals": as_dicts(bounds)},
            "agreement": {"kappa": kappa, "images": images, "judges": raters},
        },
        [],
    )


def fleiss_kappa(counts: Sequence[Sequence[int]]) -> float | None:
    """Return Fleiss' kappa of counts (subjects, categories), whose rows have equal sums; None where it is undefined.

    Source: Fleiss, "Measuring nominal scale agreement among many raters", 1971.
    """
    table = np.array(counts, dtype=float)
    if len(table) == 0 or (raters := table[0].sum()) < 2:
        return None
    observed = ((table**2).sum(1) - raters).mean() / (raters * (raters - 1))
    expected = ((table.sum(0) / table.sum()) ** 2).sum()
    return None if expected == 1 else float((observed - expected) / (1 - expected))


def _count_verdicts(judgments: Judgments) -> dict[str, list[int]]:
    """Return how often each of VERDICTS was given, for each image with a judgment."""
    verdicts = [judgments.reached(judge) for judge in judgments.verdicts]
    counts = {pair.image: Counter(given.get(pair.image) for given in verdicts) for pair in judgments.pairs}
    found = {image: [count[verdict] for verdict in VERDICTS] for image, count in counts.items()}
    return {image: group for image, group in found.items() if any(group)}


def _agreement(counts: Sequence[Sequence[int]]) -> tuple[int, int, float | None]:
    """Return the number of judges of two or more that most images have (of equals the larger), how many images have
    it, and the kappa of these.
    """
    sizes = Counter(sum(group) for group in counts if sum(group) > 1)
    if not sizes:
        return 0, 0, None
    raters = max(sizes, key=lambda size: (sizes[size], size))
    return raters, sizes[raters], fleiss_kappa([group for group in counts if sum(group) == raters])
