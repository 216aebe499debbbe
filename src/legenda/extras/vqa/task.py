"""Visual question answering as a task: the objective of MCAN, answers, their accuracy, and what a report shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from legenda.extras.vqa.co_attention import (
    CoAttentionObjective,
    CoAttentionTask,
    iter_batches,
)
from legenda.extras.vqa.data import QuestionDataset
from legenda.extras.vqa.model import Mcan
from legenda.extras.vqa.text import AnswerVocabulary
from legenda.metrics.results import EvaluationResult, Example, Prediction, mean_with_ci, means_by_group
from legenda.metrics.vqa import evaluate_vqa, soft_targets
from legenda.run_folder import ANSWERS
from legenda.runtime.settings import Overrides
from legenda.tasks.base import Batch, PreparedBatch, batch_to_regions, check_boxes, regions_to_batch

_CORRECT = 0.5
"""Accuracy from which a report calls an answer correct: two of ten annotators gave it."""


class AnswerObjective(CoAttentionObjective[QuestionDataset, Mcan]):
    """Binary cross-entropy of every answer, summed over answers and questions as in MCAN's release.

    Each chunk is weighted by its fraction of a step, so that the loss of a step is the sum over its questions for any
    number of devices and accumulation steps.
    """

    @cached_property
    def targets(self) -> list[dict[int, float]]:
        """The soft targets of each question by answer id; of answers outside the vocabulary there are none."""
        assert self.model.answers is not None
        ids, annotations = self.model.answers.ids, self.split.annotations.values()
        by_answer = (soft_targets(annotation.answers).items() for annotation in annotations)
        return [{ids[answer]: score for answer, score in items if answer in ids} for items in by_answer]

    def read(self, indices: np.ndarray) -> Batch:
        """Return regions, questions `(B, L)` and targets `(B, A)`."""
        assert self.model.answers is not None
        targets = np.zeros((len(indices), len(self.model.answers)), np.float32)
        for row, index in zip(targets, indices, strict=True):
            row[list(self.targets[index])] = list(self.targets[index].values())
        question, regions = self.tokens[torch.from_numpy(indices)], regions_to_batch(self.split.read(indices))
        return {**regions, "question": question, "targets": torch.from_numpy(targets)}

    @torch.no_grad()
    def prepare(self, indices: np.ndarray, batch: Batch, epoch: int) -> PreparedBatch:  # noqa: ARG002
        """Return the normalizer: the fraction of a step that this chunk is."""
        return PreparedBatch((), (len(indices) / self.config.batch_size,))

    def forward(self, batch: Batch, *prepared: Tensor | None) -> tuple[Float[Tensor, ""]]:
        """Return the sum over all answers and questions."""
        del prepared
        logits = self.model(batch_to_regions(batch), batch["question"])
        return (F.binary_cross_entropy_with_logits(logits, batch["targets"], reduction="sum"),)


class Vqa(CoAttentionTask[QuestionDataset, Mcan, str]):
    """Questions about images, each answered by one of the frequent answers of the training split."""

    name = "vqa"
    noun = "questions"
    card_description = (
        "Each card shows the question, the annotators' answers, and each model's answer with its probability."
    )
    metric_descriptions: ClassVar[Mapping[str, str]] = {
        "accuracy": "the official VQA accuracy: min(1, number of other annotators who gave the answer / 3), averaged"
    }
    score_name = "probability"
    objective_class = AnswerObjective
    examples = QuestionDataset

    def create(self, model: str, options: Mapping[str, object], init_from: Path | None = None) -> Mcan:
        """Return an MCAN model; its word embeddings start from the data's word vectors, if given."""
        answers = self.data.answers if init_from is None else AnswerVocabulary.load(init_from / ANSWERS)
        assert answers is not None
        mcan = self.create_with_words(model, options, init_from, answers=len(answers))
        assert isinstance(mcan, Mcan)
        check_boxes(mcan, self.data.has_boxes, self.data.train.source)
        mcan.answers = answers
        return mcan

    def metric_names(self) -> Collection[str]:
        """Return the names of the scores, found by scoring one question of each type."""
        annotations = self.data.validation.annotations
        types = {
            (annotation.question_type, annotation.answer_type): question for question, annotation in annotations.items()
        }
        return self.score(dict.fromkeys(types.values(), ""), self.data.validation).keys()

    @staticmethod
    def predict(model: Mcan, split: QuestionDataset, indices: np.ndarray, search: Overrides) -> dict[str, str]:  # noqa: ARG004
        """Return the most probable answers; there is no search."""
        answers: dict[str, str] = {}
        for questions, regions in iter_batches(model, split, indices):
            predicted = model.answer(regions, [question.text for question in questions])
            answers |= zip((question.id for question in questions), predicted, strict=True)
        return answers

    @staticmethod
    def submit(predictions: Mapping[str, object], split: str, algorithm: str) -> tuple[str, object]:
        """Return the file of EvalAI: a list of objects with `answer` and `question_id`, a number where it is one."""
        ids = {name: int(name) if name.isdecimal() else name for name in predictions}
        part = f"{split}2015" if split.startswith("test") else f"{split}2014"
        content = [{"question_id": ids[name], "answer": answer} for name, answer in predictions.items()]
        return f"v2_OpenEnded_mscoco_{part}_{algorithm}_results.json", content

    @staticmethod
    def describe_example(split: QuestionDataset, index: int) -> Example:
        """Return the question and the annotators' answers; its kind is the finest type that the split scores."""
        question = split.examples[index]
        annotation = split.annotations[question.id]
        counts = Counter(annotation.answers).most_common()
        listed = ", ".join(f"{text} ({count})" for text, count in counts)
        answer = ("annotators", listed) if len(counts) > 1 else ("answer", counts[0][0])
        kind = annotation.question_type if split.by_type else annotation.answer_type
        return Example((("question", question.text), answer), kind, question.image)

    @staticmethod
    def score_with_intervals(predictions: Mapping[str, str], split: QuestionDataset) -> EvaluationResult:
        """Return the official accuracy, in all, by answer type and, where known, by question type."""
        annotations = split.annotations
        official = evaluate_vqa(predictions, annotations).questions
        accuracy = {question: percent / 100 for question, percent in official.items()}
        types = {"type of answer": {name: annotation.answer_type for name, annotation in annotations.items()}}
        if split.by_type:
            types["type of question"] = {name: annotation.question_type for name, annotation in annotations.items()}
        groups = {title: means_by_group(accuracy, groups) for title, groups in types.items()}
        note = (
            f"An answer counts as correct from an accuracy of {_CORRECT:.0%}, where two of ten annotators gave it; its "
            " probability is the sigmoid of its logit."
        )
        return EvaluationResult({"accuracy": mean_with_ci(accuracy)}, accuracy, groups, (note,))

    @staticmethod
    def describe_predictions(
        model: Mcan,
        split: QuestionDataset,
        indices: np.ndarray,
        predictions: Mapping[str, str],
        scores: Mapping[str, float],
    ) -> dict[str, Prediction]:
        """Return the answers with their probabilities, and their accuracies where annotators disagree."""
        described: dict[str, Prediction] = {}
        for questions, regions in iter_batches(model, split, indices):
            answers = model.answer_with_probability(regions, [question.text for question in questions])
            for question, (_, probability) in zip(questions, answers, strict=True):
                accuracy = scores[question.id]
                note = f"{accuracy:.0%} correct" if 0 < accuracy < 1 else ""
                described[question.id] = Prediction(
                    (predictions[question.id],), accuracy >= _CORRECT, probability, note
                )
        return described
