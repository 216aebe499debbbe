"""What a report shows of a task that is not captioning: examples, what models said of them, and scores with intervals.

A task says it of its own examples; the page is the same for all.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, ClassVar

import numpy as np

from legenda.metrics.evaluation import Scores
from legenda.metrics.significance import intervals
from legenda.tasks.base import Task

Interval = tuple[float, float]


@dataclass(frozen=True)
class Shown:
    """One example before a model has spoken.

    facts: what a reader must know of it, each with its label. kind: the sort of example, "" where there are no sorts.
    image: its picture as feature stores name it, or its number in COCO; None where it has none. box: the true box, x1
    y1 x2 y2 in 0..1 of a picture of `size`, its width and height in pixels; None where no place is asked for.
    """

    facts: Sequence[tuple[str, str]]
    kind: str = ""
    image: str | None = None
    box: Sequence[float] | None = None
    size: tuple[float, float] | None = None


@dataclass(frozen=True)
class Said:
    """What a model said of one example.

    words: each is set apart, so that an answer of several words is one of them. right: None where nothing is wholly
    right or wrong. score: what the task's `score_name` names. box: the place it means, as in `Shown`.
    """

    words: Sequence[str] = ()
    right: bool | None = None
    score: float | None = None
    note: str = ""
    box: Sequence[float] | None = None


@dataclass(frozen=True)
class Score:
    """One score of `count` examples and the 95 % interval that holds it; in 0..1 where it is a share of them."""

    value: float
    interval: Interval
    count: int
    share: bool = True


@dataclass(frozen=True)
class Judged:
    """Predictions of a whole split, scored.

    scores: of all examples, under the names that the task explains. groups: by what examples are told apart ("type of
    answer"), the scores of each part ("number"). ranks: how good each prediction is, by the example's identity. notes:
    sentences that the reader must know to read the scores rightly.
    """

    scores: Mapping[str, Score]
    ranks: Mapping[str, float]
    groups: Mapping[str, Mapping[str, Score]] = field(default_factory=dict)
    notes: Sequence[str] = ()


class ReportedTask(Task):
    """A task whose examples each have a card in the report.

    noun: what its examples are called, in the plural. card: what a reader finds on a card. explained: its scores, in
    the order of the columns, and what each means. score_name: what `Said.score` is. loss: how the curve of the training
    loss is called.
    """

    noun: ClassVar[str]
    card: ClassVar[str]
    explained: ClassVar[Mapping[str, str]]
    score_name: ClassVar[str]
    loss: ClassVar[str] = "training loss"

    @staticmethod
    @abstractmethod
    def show(split: Any, position: int) -> Shown:
        """The example at this position."""

    @staticmethod
    @abstractmethod
    def judge(predictions: Mapping[str, Any], split: Any) -> Judged:
        """Scores of predictions for all of a split; UserError where it withholds what they are compared with."""

    @staticmethod
    @abstractmethod
    def say(
        model: Any, split: Any, positions: np.ndarray, predictions: Mapping[str, Any], ranks: Mapping[str, float]
    ) -> dict[str, Said]:
        """What the model predicted for the examples at these positions, by identity, as a reader sees it.

        predictions, ranks: those of the split; the model tells what they do not, such as how probable an answer is.
        """


def share(values: Mapping[str, float]) -> Score:
    """The mean of what each example adds, in 0..1, with a bootstrap interval over examples."""
    mean = fmean(values.values())
    single: dict[str, dict[str, float | None]] = {identity: {"share": value} for identity, value in values.items()}
    found = intervals(Scores({"share": mean}, single, documents=None, df=None))["share"]
    assert found is not None
    return Score(mean, (found.low, found.high), len(values))


def shares_of_groups(values: Mapping[str, float], groups: Mapping[str, str]) -> dict[str, Score]:
    """The same for each group of examples, in the order in which the groups are met.

    groups: the group of each example; those of the group "" are left out. An interval is that of examples of its group
    alone, so that a small group's tells how small it is.
    """
    parts: dict[str, dict[str, float]] = {}
    for identity, value in values.items():
        parts.setdefault(groups[identity], {})[identity] = value
    return {group: share(part) for group, part in parts.items() if group}
