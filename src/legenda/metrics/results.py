"""Results of a task as a report shows them: examples, predictions, and scores with intervals; without PyTorch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

import numpy as np

from legenda.metrics.evaluation import Scores
from legenda.metrics.resampling import intervals

__all__ = ["EvaluationResult", "Example", "MetricWithCI", "Prediction", "mean_with_ci", "means_by_group"]

Interval = tuple[float, float]


@dataclass(frozen=True)
class Example:
    """One example of a split, without predictions.

    facts: (label, text) pairs, such as the question and its reference answers. kind: a group to filter by, "" where
    there is none. image: the name of its image in the feature store, or its COCO number; None without an image. box:
    the reference box, x1 y1 x2 y2 in 0..1 of an image of `size` (width, height) in pixels; None where the task
    predicts no boxes.
    """

    facts: Sequence[tuple[str, str]]
    kind: str = ""
    image: str | None = None
    box: Sequence[float] | None = None
    size: tuple[float, float] | None = None


@dataclass(frozen=True)
class Prediction:
    """The prediction of a model for one example, such as its caption of an image.

    words: shown one by one, so an answer of several words is a single item. verdict: whether it is correct; None where
    that is unknown, and for tasks without right and wrong. score: the value that the task's `score_name` names. box:
    the predicted box, as in `Example`. attention: non-negative weights over N regions, `(T, N)` for T words or
    `(T, H, N)` for H heads, of which the page shows the mean or one. boxes: the regions (N, 4) of this model where they
    differ from those of the example.
    """

    words: Sequence[str] = ()
    verdict: bool | None = None
    score: float | None = None
    note: str = ""
    box: Sequence[float] | None = None
    attention: np.ndarray | None = None
    boxes: Sequence[Sequence[float]] | None = None


@dataclass(frozen=True)
class MetricWithCI:
    """A metric over `count` examples with its 95 % confidence interval, None where there is none; fractions: 0..1.

    per_example: the value of each example by id, for a mean of such values.
    """

    value: float | None
    interval: Interval | None
    count: int
    is_fraction: bool = True
    per_example: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class EvaluationResult:
    """Scores of the predictions for a whole split.

    scores: over all examples, by the names of the task's `metric_descriptions`. per_example: the score of each
    prediction, by the id of its example. groups: scores of subsets, by grouping ("type of answer") and subset
    ("number"). notes: sentences needed to interpret the scores. captions: all scores of captions, some of which are no
    means over examples; None for other tasks.
    """

    scores: Mapping[str, MetricWithCI]
    per_example: Mapping[str, float]
    groups: Mapping[str, Mapping[str, MetricWithCI]] = field(default_factory=dict)
    notes: Sequence[str] = ()
    captions: Scores[str] | None = None

    @property
    def columns(self) -> dict[str, MetricWithCI]:
        """All scores by the keys of a report; the key of a subset names the grouping too, "type of answer: number"."""
        groups = {
            group_key(title, name): metric for title, group in self.groups.items() for name, metric in group.items()
        }
        return {**self.scores, **groups}

    @property
    def comparable(self) -> Scores[str]:
        """The scores that another model's can be compared with: all scores of captions, or means over examples."""
        if self.captions is not None:
            return self.captions
        means = {name: metric for name, metric in self.scores.items() if metric.per_example}
        values: dict[str, dict[str, float | None]] = {
            identity: {name: metric.per_example[identity] for name, metric in means.items()}
            for identity in self.per_example
        }
        return Scores({name: metric.value for name, metric in means.items()}, values, documents=None, df=None)


def group_key(title: str, group: str) -> str:
    """Return the key of the score of a subset in a report."""
    return f"{title}: {group}"


def mean_with_ci(values: Mapping[str, float]) -> MetricWithCI:
    """Return the mean of the values of all examples, each in 0..1, with a bootstrap interval over examples."""
    mean = fmean(values.values())
    single: dict[str, dict[str, float | None]] = {identity: {"mean": value} for identity, value in values.items()}
    interval = intervals(Scores({"mean": mean}, single, documents=None, df=None))["mean"]
    assert interval is not None
    return MetricWithCI(mean, (interval.low, interval.high), len(values), per_example=values)


def means_by_group(values: Mapping[str, float], groups: Mapping[str, str]) -> dict[str, MetricWithCI]:
    """Return `mean_with_ci` of each group, in the order in which the groups occur.

    groups: the group of each example; examples of group "" are skipped. Each interval is computed from the examples of
    its group alone, so small groups have wide intervals.
    """
    members: dict[str, dict[str, float]] = {}
    for identity, value in values.items():
        members.setdefault(groups[identity], {})[identity] = value
    return {group: mean_with_ci(part) for group, part in members.items() if group}
