"""Referring expressions with the regions of their images, for training and validation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from legenda.data.features.concat import ConcatFeatureStore, RegionReader
from legenda.data.refcoco import Expression
from legenda.errors import DataError
from legenda.metrics.boxes import grounding_accuracy
from legenda.text.vocabulary import QuestionVocabulary


@dataclass(frozen=True, eq=False)
class ExpressionDataset:
    """One split: its expressions and a reader of the regions of their images, which always have boxes.

    read: from positions in this split `(B,)` to the Regions of the images of those expressions.
    source: what the regions are read from, for messages. extractor: the extractor of the regions.
    """

    expressions: tuple[Expression, ...]
    read: RegionReader
    source: str
    extractor: str

    def __len__(self) -> int:
        return len(self.expressions)

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """Return the expressions' ids, all different."""
        return tuple(expression.id for expression in self.expressions)

    @cached_property
    def boxes(self) -> np.ndarray:
        """Return the true boxes `(E, 4)` float32, x1 y1 x2 y2 in pixels."""
        return np.array([expression.box for expression in self.expressions], np.float32)

    @cached_property
    def sizes(self) -> np.ndarray:
        """Width and height of the images `(E, 2)` float32, in pixels."""
        return np.array([expression.size for expression in self.expressions], np.float32)

    def score(self, predictions: Mapping[str, Sequence[float]]) -> dict[str, float | None]:
        """Return the percentage of boxes, x1 y1 x2 y2 in pixels, with IoU of at least 0.5: overall, then by kind.

        Raises DataError, naming the expression, for one without a box.
        """
        for name in self.ids:
            if len(predictions.get(name, ())) != 4:
                raise DataError(f"the expression {name} has no predicted box x1 y1 x2 y2; predict one for each")
        predicted = np.array([predictions[name] for name in self.ids], np.float32)
        kinds = np.array([expression.kind for expression in self.expressions])
        scores: dict[str, float | None] = {"accuracy": grounding_accuracy(predicted, self.boxes)}
        for kind in dict.fromkeys(kinds.tolist()):
            if kind:
                scores[kind] = grounding_accuracy(predicted[kinds == kind], self.boxes[kinds == kind])
        return scores


@dataclass(frozen=True, eq=False)
class ExpressionDataModule:
    """A data set of expressions in use.

    max_text_length: the length of every row of words. vectors: first vectors of the words `(V, E)`, or None.
    """

    train: ExpressionDataset
    validation: ExpressionDataset
    vocabulary: QuestionVocabulary
    feature_dim: int
    max_text_length: int
    vectors: np.ndarray | None = None


def stored_expressions(expressions: Sequence[Expression], store: ConcatFeatureStore) -> ExpressionDataset:
    """Expressions about images whose regions are in stores; DataError where these have no boxes."""
    if not store.has_boxes:
        raise DataError(f"{store.source} has no boxes, among which expressions choose; name features of regions")
    read = store.reader([expression.image for expression in expressions])
    return ExpressionDataset(tuple(expressions), read, store.source, store.extractor)
