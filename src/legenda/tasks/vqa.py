"""Visual question answering: answers to questions about pictures, learnt from what ten people said."""

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

from legenda.datasets.questions import EncodedQuestions, QuestionDataModule, QuestionDataset
from legenda.errors import UserError
from legenda.metrics.vqa import evaluate_vqa
from legenda.models.mcan import ANSWERS, Mcan, McanConfig
from legenda.models.model import VOCABULARY
from legenda.models.registry import build_model, describe_model
from legenda.tasks.base import Batch, Loss, Objective, Prepared, check_boxes, parts_of, regions_of
from legenda.tasks.config import ObjectiveConfig
from legenda.tasks.reporting import EvaluationResult, Example, Prediction, ReportedTask, mean_with_ci, means_by_group
from legenda.tasks.rewards import Reward
from legenda.tasks.word_vectors import begin_words, in_parts
from legenda.text.vocabulary import AnswerVocabulary, QuestionVocabulary

_RIGHT = 0.5
"""The least accuracy of a single answer that a report calls right; among ten people two agree on such a one."""


class Vqa(ReportedTask):
    """Questions about pictures, each answered by one of the answers that people give often."""

    name = "vqa"
    noun = "questions"
    card_description = "Each card has the question, what people answered, and each model's answer with its probability."
    metric_descriptions: ClassVar[Mapping[str, str]] = {
        "accuracy": "the official accuracy, by which an answer is right by a third for each further person who agrees"
    }
    score_name = "probability"

    def __init__(self, data: QuestionDataModule) -> None:
        self.data = data
        self.train, self.validation = data.train, data.validation
        self.extractor = data.train.extractor

    def create(self, model: str, options: Mapping[str, Any], start: Path | None = None) -> Mcan:
        """MCAN, with the data's first word vectors where there are any and no model is continued."""
        data = self.data
        words, answers = data.vocabulary, data.answers
        if start is not None:
            words, answers = QuestionVocabulary.load(start / VOCABULARY), AnswerVocabulary.load(start / ANSWERS)
        sizes = {
            "vocab_size": len(words),
            "answers": len(answers),
            "feature_dim": data.feature_dim,
            "max_words": data.max_words,
        }
        if not issubclass(describe_model(model).config, McanConfig):
            raise UserError(f"{model} answers no questions; choose one such as mcan")
        created = build_model(model, {**options, **sizes})
        assert isinstance(created, Mcan)
        check_boxes(created, data.has_boxes, data.train.source)
        created.vocabulary, created.answers = words, answers
        if start is None and data.vectors is not None:
            begin_words(created, data.vectors)
        return created

    def objective(
        self,
        model: Mcan,
        training: ObjectiveConfig,
        rewards: Mapping[str, Reward] | None = None,  # noqa: ARG002
    ) -> AnswerObjective:
        """Binary cross-entropy with soft targets."""
        return AnswerObjective(model, training, self.data.train)

    def measured(self) -> Collection[str]:
        """Found out by scoring one question of each type."""
        annotations = self.data.validation.annotations
        kinds = {(told.question_type, told.answer_type): question for question, told in annotations.items()}
        return self.score(dict.fromkeys(kinds.values(), ""), self.data.validation).keys()

    @staticmethod
    def predict(model: Mcan, split: QuestionDataset, positions: np.ndarray, *, beam_size: int) -> dict[str, str]:
        """The most probable answers; nothing is searched for, so that `beam_size` plays no part."""
        del beam_size
        answers: dict[str, str] = {}
        for part, regions in in_parts(model, split, positions):
            asked = [split.questions[position] for position in part]
            said = model.answer(regions, [question.text for question in asked])
            answers |= zip((question.id for question in asked), said, strict=True)
        return answers

    @staticmethod
    def score(predictions: Mapping[str, Any], split: QuestionDataset) -> dict[str, float | None]:
        """Percentages of the official evaluation, over the questions that are answered."""
        answered = tuple(question for question in split.questions if question.id in predictions)
        return replace(split, questions=answered).score(predictions)

    @staticmethod
    def describe_example(split: QuestionDataset, position: int) -> Example:
        """The question and what people answered; its kind is that of the finest accuracy that the split tells."""
        question = split.questions[position]
        told = split.annotations[question.id]
        people = Counter(told.answers).most_common()
        if len(people) == 1:
            answer = ("answer", people[0][0])
        else:
            answer = ("people", ", ".join(f"{text} ({count})" for text, count in people))
        kind = told.question_type if split.by_type else told.answer_type
        return Example((("question", question.text), answer), kind, question.image)

    @staticmethod
    def score_with_intervals(predictions: Mapping[str, Any], split: QuestionDataset) -> EvaluationResult:
        """The official accuracy, also by type of answer and, where the split tells it, by type of question."""
        told = split.annotations
        official = evaluate_vqa(predictions, told).questions
        right = {question: percent / 100 for question, percent in official.items()}
        types = {"type of answer": {question: annotation.answer_type for question, annotation in told.items()}}
        if split.by_type:
            types["type of question"] = {question: annotation.question_type for question, annotation in told.items()}
        groups = {title: means_by_group(right, groups) for title, groups in types.items()}
        note = (
            f"An answer is called right from an accuracy of {_RIGHT:.0%} on, that is where two of ten people gave it; "
            "its probability is the sigmoid of its score."
        )
        return EvaluationResult({"accuracy": mean_with_ci(right)}, right, groups, (note,))

    @staticmethod
    def describe_predictions(
        model: Mcan,
        split: QuestionDataset,
        positions: np.ndarray,
        predictions: Mapping[str, Any],
        scores: Mapping[str, float],
    ) -> dict[str, Prediction]:
        """The answers with their probabilities, and with their accuracies where people disagree."""
        said: dict[str, Prediction] = {}
        for part, regions in in_parts(model, split, positions):
            asked = [split.questions[position] for position in part]
            found = model.answer_with_probability(regions, [question.text for question in asked])
            for question, (_, probability) in zip(asked, found, strict=True):
                accuracy = scores[question.id]
                note = f"{accuracy:.0%} correct" if 0 < accuracy < 1 else ""
                said[question.id] = Prediction((predictions[question.id],), accuracy >= _RIGHT, probability, note)
        return said


class AnswerObjective(Objective):
    """Binary cross-entropy of every answer, summed over answers and questions as in MCAN's release.

    Each batch is weighted by its share of a whole step, so that a step's loss is the plain sum over its questions,
    however many devices and parts share it.
    """

    model: Mcan

    def __init__(self, model: Mcan, training: ObjectiveConfig, split: QuestionDataset) -> None:
        super().__init__(model)
        self.batch_size = training.batch_size
        self.split = split

    @cached_property
    def questions(self) -> EncodedQuestions:
        """The questions of the split in the model's words, and what it learns of its answers."""
        model = self.model
        assert model.vocabulary is not None
        assert model.answers is not None
        return EncodedQuestions.of(self.split, model.vocabulary, model.answers, model.config.max_words)

    def read(self, positions: np.ndarray) -> Batch:
        """Regions, questions `(B, L)` and targets `(B, A)`."""
        question = self.questions.tokens[torch.from_numpy(positions)]
        targets = self.questions.targets(positions)
        return {**parts_of(self.split.read(positions)), "question": question, "targets": targets}

    @torch.no_grad()
    def prepare(self, positions: np.ndarray, batch: Batch, epoch: int) -> Prepared:  # noqa: ARG002
        """Nothing is to be prepared."""
        return Prepared((), (len(positions) / self.batch_size,), lambda total: Loss((total,)))

    def forward(self, batch: Batch, *prepared: Tensor | None) -> Float[Tensor, ""]:
        """The sum over all answers and questions."""
        del prepared
        logits = self.model(regions_of(batch), batch["question"])
        return F.binary_cross_entropy_with_logits(logits, batch["targets"], reduction="sum")
