"""Visual grounding: the box in a picture that an expression means, chosen among regions and moved to fit."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from legenda.datasets.expressions import ExpressionDataModule, ExpressionDataset
from legenda.datasets.questions import encode_tokens
from legenda.errors import UserError
from legenda.metrics.boxes import HIT, box_iou, encode_deltas, score_targets
from legenda.models.grounding import Grounder, GroundingConfig, in_pixels
from legenda.models.model import VOCABULARY
from legenda.models.registry import build_model, describe_model
from legenda.tasks.base import Batch, Loss, Objective, Prepared, parts_of, regions_of
from legenda.tasks.config import ObjectiveConfig
from legenda.tasks.reporting import EvaluationResult, Example, Prediction, ReportedTask, mean_with_ci, means_by_group
from legenda.tasks.rewards import Reward
from legenda.tasks.word_vectors import begin_words, in_parts
from legenda.text.vocabulary import QuestionVocabulary


class Grounding(ReportedTask):
    """Expressions, each of which means one thing in a picture."""

    name = "grounding"
    noun = "expressions"
    card_description = "Each card has an expression, the true box, and the box that each model finds."
    metric_descriptions: ClassVar[Mapping[str, str]] = {
        "accuracy": f"share of boxes that overlap the true one by {HIT} at least (IoU: common area over that of both)"
    }
    score_name = "IoU"

    def __init__(self, data: ExpressionDataModule) -> None:
        self.data = data
        self.train, self.validation = data.train, data.validation
        self.extractor = data.train.extractor

    def create(self, model: str, options: Mapping[str, Any], start: Path | None = None) -> Grounder:
        """MCAN's form for grounding, with the data's first word vectors where there are any and none is continued."""
        data = self.data
        words = data.vocabulary if start is None else QuestionVocabulary.load(start / VOCABULARY)
        sizes = {"vocab_size": len(words), "feature_dim": data.feature_dim, "max_words": data.max_words}
        if not issubclass(describe_model(model).config, GroundingConfig):
            raise UserError(f"{model} finds no regions for expressions; choose one such as mcan_grounding")
        created = build_model(model, {**options, **sizes})
        assert isinstance(created, Grounder)
        created.vocabulary = words
        if start is None and data.vectors is not None:
            begin_words(created, data.vectors)
        return created

    def objective(
        self,
        model: Grounder,
        training: ObjectiveConfig,  # noqa: ARG002
        rewards: Mapping[str, Reward] | None = None,  # noqa: ARG002
    ) -> BoxObjective:
        """Divergence of scores and errors of deltas."""
        return BoxObjective(model, self.data.train)

    def measured(self) -> Collection[str]:
        """Found out by scoring the true box of one expression of each kind."""
        split = self.data.validation
        kinds = {expression.kind: expression for expression in split.expressions}
        return self.score({found.id: found.box for found in kinds.values()}, split).keys()

    @staticmethod
    def predict(
        model: Grounder, split: ExpressionDataset, positions: np.ndarray, *, beam_size: int
    ) -> dict[str, list[float]]:
        """x1 y1 x2 y2 in pixels; nothing is searched for, so that `beam_size` plays no part."""
        del beam_size
        boxes: dict[str, list[float]] = {}
        for part, regions in in_parts(model, split, positions):
            meant = [split.expressions[position] for position in part]
            found = model.locate(regions, [expression.tokens for expression in meant], split.sizes[part])
            boxes |= zip((expression.id for expression in meant), found.tolist(), strict=True)
        return boxes

    @staticmethod
    def score(predictions: Mapping[str, Any], split: ExpressionDataset) -> dict[str, float | None]:
        """Percentages of boxes that fit, over the expressions that have one predicted."""
        found = tuple(expression for expression in split.expressions if expression.id in predictions)
        return replace(split, expressions=found).score(predictions)

    @staticmethod
    def describe_example(split: ExpressionDataset, position: int) -> Example:
        """The expression and its true box."""
        meant = split.expressions[position]
        box = _shares_of_picture(meant.box, meant.size)
        return Example((("expression", " ".join(meant.tokens)),), meant.kind, meant.image, box, meant.size)

    @staticmethod
    def score_with_intervals(predictions: Mapping[str, Any], split: ExpressionDataset) -> EvaluationResult:
        """Return the share of boxes that fit, also by kind of expression; the score of one prediction is its IoU."""
        given = np.array([predictions[name] for name in split.ids], np.float32)
        overlaps = dict(zip(split.ids, box_iou(given, split.boxes).tolist(), strict=True))
        hits = {name: float(overlap >= HIT) for name, overlap in overlaps.items()}
        kinds = {expression.id: expression.kind for expression in split.expressions}
        groups = means_by_group(hits, kinds)
        return EvaluationResult(
            {"accuracy": mean_with_ci(hits)}, overlaps, {"kind of expression": groups} if groups else {}
        )

    @staticmethod
    def describe_predictions(
        model: Grounder,  # noqa: ARG004
        split: ExpressionDataset,
        positions: np.ndarray,
        predictions: Mapping[str, Any],
        scores: Mapping[str, float],
    ) -> dict[str, Prediction]:
        """The boxes with their overlaps."""
        chosen = [split.expressions[position] for position in positions]
        return {
            meant.id: Prediction(
                correct=scores[meant.id] >= HIT,
                score=scores[meant.id],
                box=_shares_of_picture(predictions[meant.id], meant.size),
            )
            for meant in chosen
        }


def _shares_of_picture(box: Sequence[float], size: tuple[float, float]) -> list[float]:
    """A box in pixels as shares of the picture's width and height, cut at its edges."""
    return (np.asarray(box) / np.tile(size, 2)).clip(0, 1).tolist()


class BoxObjective(Objective):
    """How the scores differ from overlaps with the true box, and half of what the deltas are wrong by (mmnas).

    The first part is the Kullback-Leibler divergence of each expression's scores from the overlaps of the regions that
    overlap by half at least, which share 1 among them, over the number of expressions that have such regions. The
    second is the smooth L1 distance of these regions' four deltas, summed, over the number of these regions.
    """

    model: Grounder
    shares = (1.0, 0.5)

    def __init__(self, model: Grounder, split: ExpressionDataset) -> None:
        super().__init__(model)
        self.split = split

    @cached_property
    def tokens(self) -> Int[Tensor, "E L"]:
        """The expressions of the split in the model's words."""
        assert self.model.vocabulary is not None
        texts = (expression.tokens for expression in self.split.expressions)
        return encode_tokens(texts, self.model.vocabulary, self.model.config.max_words)

    def read(self, positions: np.ndarray) -> Batch:
        """Regions, expressions `(B, L)`, targets of scores `(B, N)` and of deltas `(B, N, 4)`."""
        regions = self.split.read(positions)
        boxes, truth = in_pixels(regions, self.split.sizes[positions]), self.split.boxes[positions][:, np.newaxis]
        overlaps = np.where(regions.mask_or_ones.numpy(), box_iou(boxes, truth), 0)
        return {
            **parts_of(regions),
            "expression": self.tokens[torch.from_numpy(positions)],
            "scores": torch.from_numpy(score_targets(overlaps)),
            "deltas": torch.from_numpy(encode_deltas(boxes, truth)),
        }

    @torch.no_grad()
    def prepare(self, positions: np.ndarray, batch: Batch, epoch: int) -> Prepared:  # noqa: ARG002
        """Counts the expressions that have regions on their box, and these regions."""
        near = batch["scores"] > 0
        counts = (float(near.any(dim=1).sum()), float(near.sum()))
        return Prepared((), counts, Loss)

    def forward(self, batch: Batch, *prepared: Tensor | None) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        """The two sums."""
        del prepared
        scores, deltas = self.model(regions_of(batch), batch["expression"])
        target = batch["scores"]
        near = target > 0
        log_probs = scores.log_softmax(dim=-1).masked_fill(~near, 0.0)  # of padded regions they are minus infinity
        divergence = (torch.xlogy(target, target) - target * log_probs).sum()
        apart = F.smooth_l1_loss(deltas.to(target.dtype), batch["deltas"], reduction="none").sum(dim=-1)
        return divergence, apart.masked_fill(~near, 0.0).sum()
