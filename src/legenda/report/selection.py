"""Which examples of a split a report shows."""

from collections.abc import Sequence

import numpy as np


def select_examples(scores: Sequence[Sequence[float]], count: int) -> list[int]:
    """Return the sorted positions of `count` examples to show, or of all where there are no more.

    scores: for each run the score of each example. A quarter each have the highest and the lowest mean score and, for
    several runs, the largest difference between runs; the others are evenly spaced among the remaining examples.
    """
    values = np.asarray(scores, dtype=float)
    total = values.shape[1]
    if total <= count:
        return list(range(total))
    mean, difference = values.mean(axis=0), np.ptp(values, axis=0)
    orders = [(-mean).argsort(kind="stable"), mean.argsort(kind="stable")]
    if len(values) > 1:
        orders.append((-difference).argsort(kind="stable"))
    selected: dict[int, None] = {}
    for order in orders:
        candidates = [position for position in order.tolist() if position not in selected]
        selected.update(dict.fromkeys(candidates[: count // 4]))
    rest = [position for position in range(total) if position not in selected]
    missing = count - len(selected)
    selected.update(dict.fromkeys(rest[index * len(rest) // missing] for index in range(missing)))
    return sorted(selected)
