"""The interface of a task whose examples, predictions and scores a report shows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from legenda.metrics.results import EvaluationResult, Example, Prediction
from legenda.tasks.base import M, P, S, Task


class ReportedTask(Task[S, M, P]):
    """A task whose examples are shown as cards in the report.

    noun: plural name of its examples. card_description: what a card shows. metric_descriptions: its metrics in the
    order of the columns, each with a description. score_name: the meaning of `Prediction.score`.
    """

    noun: ClassVar[str]
    card_description: ClassVar[str]
    metric_descriptions: ClassVar[Mapping[str, str]]
    score_name: ClassVar[str]

    @staticmethod
    @abstractmethod
    def describe_example(split: S, index: int) -> Example:
        """Return the example at this position of the split."""

    @staticmethod
    @abstractmethod
    def score_with_intervals(predictions: Mapping[str, P], split: S) -> EvaluationResult:
        """Score the predictions for a whole split; raise an error where the split has no reference answers."""

    @staticmethod
    @abstractmethod
    def describe_predictions(
        model: M, split: S, indices: np.ndarray, predictions: Mapping[str, P], scores: Mapping[str, float]
    ) -> dict[str, Prediction]:
        """Return the predictions for the examples at these indices, by id, as a report shows them.

        predictions, scores: those of the whole split, by id. The model adds what they lack, such as probabilities.
        """
