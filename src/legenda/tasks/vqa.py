"""Visual question answering: classification over frequent answers, trained on the answers of ten annotators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from legenda.data.questions import EncodedQuestions, QuestionDataModule, QuestionDataset
from legenda.metrics.vqa import evaluate_vqa
from legenda.models.mcan import Mcan
from legenda.run_folder import ANSWERS
from legenda.tasks.base import Batch, Loss, Objective, PreparedBatch, batch_to_regions, check_boxes, regions_to_batch
from legenda.tasks.reporting import EvaluationResult, Example, Prediction, ReportedTask, mean_with_ci, means_by_group
from legenda.tasks.word_vectors import create_co_attention_model, iter_batches
from legenda.text.vocabulary import AnswerVocabulary

_CORRECT = 0.5
"""Accuracy from which a report calls an answer correct: two of ten annotators gave it."""


class AnswerObjective(Objective):
    """Binary cross-entropy of every answer, summed over answers and questions as in MCAN's release.

    Each chunk is weighted by its fraction of a step, so that the loss of a step is the sum over its questions for any
    number of devices and accumulation steps.
    """

    model: Mcan

    @cached_property
    def questions(self) -> EncodedQuestions:
        """The questions of the split as token ids, with soft targets over the answers."""
        model = self.model
        assert model.vocabulary is not None
        assert model.answers is not None
        return EncodedQuestions.of(self.split, model.vocabulary, model.answers, model.config.max_text_length)

    def read(self, indices: np.ndarray) -> Batch:
        """Return regions, questions `(B, L)` and targets `(B, A)`."""
        question = self.questions.tokens[torch.from_numpy(indices)]
        targets = self.questions.targets(indices)
        return {**regions_to_batch(self.split.read(indices)), "question": question, "targets": targets}

    @torch.no_grad()
    def prepare(self, indices: np.ndarray, batch: Batch, epoch: int) -> PreparedBatch:  # noqa: ARG002
        """Return the normalizer: the fraction of a step that this chunk is."""
        return PreparedBatch((), (len(indices) / self.config.batch_size,), lambda total: Loss((total,)))

    def forward(self, batch: Batch, *prepared: Tensor | None) -> Float[Tensor, ""]:
        """Return the sum over all answers and questions."""
        del prepared
        logits = self.model(batch_to_regions(batch), batch["question"])
        return F.binary_cross_entropy_with_logits(logits, batch["targets"], reduction="sum")


class Vqa(ReportedTask):
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
    data: QuestionDataModule

    def create(self, model: str, options: Mapping[str, Any], init_from: Path | None = None) -> Mcan:
        """Return an MCAN model; its word embeddings start from the data's word vectors, if given."""
        answers = self.data.answers if init_from is None else AnswerVocabulary.load(init_from / ANSWERS)
        mcan = create_co_attention_model(self, model, options, init_from, answers=len(answers))
        assert isinstance(mcan, Mcan)
        check_boxes(mcan, self.data.has_boxes, self.data.train.source)
        mcan.answers = answers
        return mcan

    def metric_names(self) -> Collection[str]:
        """Return the names of the scores, found by scoring one question of each type."""
        annotations = self.data.validation.annotations
        types = {(one.question_type, one.answer_type): question for question, one in annotations.items()}
        return self.score(dict.fromkeys(types.values(), ""), self.data.validation).keys()

    @staticmethod
    def predict(model: Mcan, split: QuestionDataset, indices: np.ndarray, *, beam_size: int) -> dict[str, str]:
        """Return the most probable answers; there is no search, so `beam_size` is ignored."""
        del beam_size
        answers: dict[str, str] = {}
        for batch, regions in iter_batches(model, split, indices):
            questions = [split.questions[index] for index in batch]
            texts = model.answer(regions, [question.text for question in questions])
            answers |= zip((question.id for question in questions), texts, strict=True)
        return answers

    @staticmethod
    def score(predictions: Mapping[str, Any], split: QuestionDataset) -> dict[str, float | None]:
        """Return the percentages of the official evaluation over the predicted questions."""
        answered = tuple(question for question in split.questions if question.id in predictions)
        return replace(split, questions=answered).score(predictions)

    @staticmethod
    def describe_example(split: QuestionDataset, index: int) -> Example:
        """Return the question and the annotators' answers; its kind is the finest type that the split scores."""
        question = split.questions[index]
        annotation = split.annotations[question.id]
        counts = Counter(annotation.answers).most_common()
        if len(counts) == 1:
            answer = ("answer", counts[0][0])
        else:
            answer = ("annotators", ", ".join(f"{text} ({count})" for text, count in counts))
        kind = annotation.question_type if split.by_type else annotation.answer_type
        return Example((("question", question.text), answer), kind, question.image)

    @staticmethod
    def score_with_intervals(predictions: Mapping[str, Any], split: QuestionDataset) -> EvaluationResult:
        """Return the official accuracy, in all, by answer type and, where known, by question type."""
        annotations = split.annotations
        official = evaluate_vqa(predictions, annotations).questions
        accuracy = {question: percent / 100 for question, percent in official.items()}
        types = {"type of answer": {question: annotation.answer_type for question, annotation in annotations.items()}}
        if split.by_type:
            types["type of question"] = {
                question: annotation.question_type for question, annotation in annotations.items()
            }
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
        predictions: Mapping[str, Any],
        scores: Mapping[str, float],
    ) -> dict[str, Prediction]:
        """Return the answers with their probabilities, and their accuracies where annotators disagree."""
        described: dict[str, Prediction] = {}
        for batch, regions in iter_batches(model, split, indices):
            questions = [split.questions[index] for index in batch]
            answers = model.answer_with_probability(regions, [question.text for question in questions])
            for question, (_, probability) in zip(questions, answers, strict=True):
                accuracy = scores[question.id]
                note = f"{accuracy:.0%} correct" if 0 < accuracy < 1 else ""
                described[question.id] = Prediction(
                    (predictions[question.id],), accuracy >= _CORRECT, probability, note
                )
        return described
