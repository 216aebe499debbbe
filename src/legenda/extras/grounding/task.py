"""Grounding as a task: the objective of mmnas, boxes, their accuracy, and what a report shows."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from legenda.extras.grounding.data import HIT, ExpressionDataset, box_iou, score_targets
from legenda.extras.grounding.model import Grounder, encode_deltas, in_pixels
from legenda.extras.vqa.co_attention import (
    CoAttentionObjective,
    CoAttentionTask,
    iter_batches,
)
from legenda.metrics.results import EvaluationResult, Example, Prediction, mean_with_ci, means_by_group
from legenda.runtime.settings import Overrides
from legenda.tasks.base import Batch, PreparedBatch, batch_to_regions, regions_to_batch


class BoxObjective(CoAttentionObjective[ExpressionDataset, Grounder]):
    """KL divergence of the scores from the normalized IoU, plus half the smooth L1 loss of the deltas (mmnas).

    The targets of the scores are the IoUs of at least 0.5, normalized to sum to 1 for each expression; the divergence
    is divided by the number of expressions that have such regions. The smooth L1 loss of these regions' four deltas is
    summed and divided by the number of these regions.
    """

    loss_weights = (1.0, 0.5)

    def read(self, indices: np.ndarray) -> Batch:
        """Return regions, expressions `(B, L)`, targets of scores `(B, N)` and of deltas `(B, N, 4)`."""
        regions = self.split.read(indices)
        boxes, truth = in_pixels(regions, self.split.sizes[indices]), self.split.boxes[indices][:, np.newaxis]
        overlaps = np.where(regions.mask_or_ones.numpy(), box_iou(boxes, truth), 0)
        return {
            **regions_to_batch(regions),
            "expression": self.tokens[torch.from_numpy(indices)],
            "scores": torch.from_numpy(score_targets(overlaps)),
            "deltas": torch.from_numpy(encode_deltas(boxes, truth)),
        }

    @torch.no_grad()
    def prepare(self, indices: np.ndarray, batch: Batch, epoch: int) -> PreparedBatch:  # noqa: ARG002
        """Return the normalizers: the number of expressions with positive regions, and of positive regions."""
        positive = batch["scores"] > 0
        normalizers = (float(positive.any(dim=1).sum()), float(positive.sum()))
        return PreparedBatch((), normalizers)

    def forward(self, batch: Batch, *prepared: Tensor | None) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        """Return the two sums."""
        del prepared
        scores, deltas = self.model(batch_to_regions(batch), batch["expression"])
        target = batch["scores"]
        positive = target > 0
        log_probs = scores.log_softmax(dim=-1).masked_fill(~positive, 0.0)  # -inf for padded regions
        divergence = (torch.xlogy(target, target) - target * log_probs).sum()
        distances = F.smooth_l1_loss(deltas.to(target.dtype), batch["deltas"], reduction="none").sum(dim=-1)
        return divergence, distances.masked_fill(~positive, 0.0).sum()


class Grounding(CoAttentionTask[ExpressionDataset, Grounder, Sequence[float]]):
    """Referring expressions, each of which refers to one box of an image."""

    name = "grounding"
    noun = "expressions"
    card_description = "Each card shows an expression, the ground-truth box, and the box that each model predicts."
    metric_descriptions: ClassVar[Mapping[str, str]] = {
        "accuracy": f"fraction of boxes whose IoU with the ground truth is at least {HIT}"
    }
    score_name = "IoU"
    objective_class = BoxObjective
    examples = ExpressionDataset

    def create(self, model: str, options: Mapping[str, object], init_from: Path | None = None) -> Grounder:
        """Return MCAN for grounding; its word embeddings start from the data's word vectors, if given."""
        grounder = self.create_with_words(model, options, init_from)
        assert isinstance(grounder, Grounder)
        return grounder

    def metric_names(self) -> Collection[str]:
        """Return the names of the scores, found by scoring the ground truth of one expression of each kind."""
        split = self.data.validation
        kinds = {expression.kind: expression for expression in split.examples}
        return self.score({expression.id: expression.box for expression in kinds.values()}, split).keys()

    @staticmethod
    def predict(
        model: Grounder,
        split: ExpressionDataset,
        indices: np.ndarray,
        search: Overrides,  # noqa: ARG004
    ) -> dict[str, Sequence[float]]:
        """Return boxes x1 y1 x2 y2 in pixels; there is no search."""
        boxes: dict[str, Sequence[float]] = {}
        for expressions, regions in iter_batches(model, split, indices):
            sizes = np.array([expression.size for expression in expressions], np.float32)
            located = model.locate(regions, [expression.tokens for expression in expressions], sizes)
            boxes |= zip((expression.id for expression in expressions), located.tolist(), strict=True)
        return boxes

    @staticmethod
    def describe_example(split: ExpressionDataset, index: int) -> Example:
        """Return the expression and its ground-truth box."""
        expression = split.examples[index]
        box = _relative_box(expression.box, expression.size)
        text = " ".join(expression.tokens)
        return Example((("expression", text),), expression.kind, expression.image, box, expression.size)

    @staticmethod
    def score_with_intervals(predictions: Mapping[str, Sequence[float]], split: ExpressionDataset) -> EvaluationResult:
        """Return the fraction of hits, in all and by kind of expression; the score of one prediction is its IoU."""
        predicted = np.array([predictions[name] for name in split.ids], np.float32)
        overlaps = dict(zip(split.ids, box_iou(predicted, split.boxes).tolist(), strict=True))
        hits = {name: float(overlap >= HIT) for name, overlap in overlaps.items()}
        kinds = means_by_group(hits, {expression.id: expression.kind for expression in split.examples})
        groups = {"kind of expression": kinds} if kinds else {}
        return EvaluationResult({"accuracy": mean_with_ci(hits)}, overlaps, groups)

    @staticmethod
    def describe_predictions(
        model: Grounder,  # noqa: ARG004
        split: ExpressionDataset,
        indices: np.ndarray,
        predictions: Mapping[str, Sequence[float]],
        scores: Mapping[str, float],
    ) -> dict[str, Prediction]:
        """Return the boxes with their IoU."""
        described: dict[str, Prediction] = {}
        for expression in (split.examples[index] for index in indices):
            box, iou = _relative_box(predictions[expression.id], expression.size), scores[expression.id]
            described[expression.id] = Prediction(verdict=iou >= HIT, score=iou, box=box)
        return described


def _relative_box(box: Sequence[float], size: tuple[float, float]) -> list[float]:
    """Return a box in pixels relative to the image's width and height, clipped to the image."""
    return (np.asarray(box) / np.tile(size, 2)).clip(0, 1).tolist()
