"""Expressions about pictures, ready for training and validation, whatever they come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from legenda.datasets.refcoco import Expression
from legenda.errors import UserError
from legenda.features.concat import ConcatFeatureStore, RegionReader
from legenda.metrics.boxes import grounding_accuracy
from legenda.text.vocabulary import QuestionVocabulary


@dataclass(frozen=True, eq=False)
class ExpressionDataset:
    """One split: its expressions and a reader of their pictures' regions, which always have boxes.

    read: from an array of positions in this split to the regions of those expressions' pictures, one row each.
    source: what the regions are read from, for messages. extractor: the name under which they were made.
    """

    expressions: tuple[Expression, ...]
    read: RegionReader
    source: str
    extractor: str

    def __len__(self) -> int:
        return len(self.expressions)

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """The expressions' ids, all different."""
        return tuple(expression.id for expression in self.expressions)

    @cached_property
    def boxes(self) -> np.ndarray:
        """The true boxes `(E, 4)` float32, x1 y1 x2 y2 in pixels."""
        return np.array([expression.box for expression in self.expressions], np.float32)

    @cached_property
    def sizes(self) -> np.ndarray:
        """Width and height of the pictures `(E, 2)` float32, in pixels."""
        return np.array([expression.size for expression in self.expressions], np.float32)

    def score(self, predictions: Mapping[str, Sequence[float]]) -> dict[str, float | None]:
        """The percentage of boxes, x1 y1 x2 y2 in pixels, that overlap the true one by half: of all, then by kind.

        Raises UserError, naming the expression, for one without a box.
        """
        for name in self.ids:
            if len(predictions.get(name, ())) != 4:
                raise UserError(f"the expression {name} has no predicted box x1 y1 x2 y2; predict one for each")
        given = np.array([predictions[name] for name in self.ids], np.float32)
        kinds = np.array([expression.kind for expression in self.expressions])
        scores: dict[str, float | None] = {"accuracy": grounding_accuracy(given, self.boxes)}
        for kind in dict.fromkeys(kinds.tolist()):
            if kind:
                scores[kind] = grounding_accuracy(given[kinds == kind], self.boxes[kinds == kind])
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
    """Expressions about pictures whose regions are in stores; UserError where these have no boxes."""
    if not store.has_boxes:
        raise UserError(f"{store.source} has no boxes, among which expressions choose; name features of regions")
    read = store.reader([expression.image for expression in expressions])
    return ExpressionDataset(tuple(expressions), read, store.source, store.extractor)
