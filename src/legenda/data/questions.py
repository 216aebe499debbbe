"""Questions with the regions of their images, for training and validation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from legenda.data.features.concat import ConcatFeatureStore, RegionReader
from legenda.data.vqa import Question
from legenda.errors import DataError
from legenda.metrics.vqa import Annotation, evaluate_vqa, soft_targets
from legenda.text.tokenizers import tokenize_question
from legenda.text.vocabulary import AnswerVocabulary, QuestionVocabulary, encode_tokens

if TYPE_CHECKING:
    from jaxtyping import Float, Int
    from torch import Tensor


@dataclass(frozen=True, eq=False)
class QuestionDataset:
    """One split: its questions and a reader of their images' regions.

    read: from positions in this split `(B,)` to the Regions of the images of those questions.
    source: what the regions are read from, for messages. extractor: the extractor of the regions.
    by_type: whether `score` also returns the accuracy of each type of question.
    """

    questions: tuple[Question, ...]
    read: RegionReader
    source: str
    extractor: str
    by_type: bool = False

    def __len__(self) -> int:
        return len(self.questions)

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """Return the questions' ids, all different."""
        return tuple(question.id for question in self.questions)

    @property
    def missing_targets(self) -> str | None:
        """Return "answers" where no question has one, so that nothing can be scored; else None."""
        return None if any(question.annotation is not None for question in self.questions) else "answers"

    @cached_property
    def annotations(self) -> dict[str, Annotation]:
        """The human answers, by question; raise DataError where a question has none."""
        annotations = {question.id: question.annotation for question in self.questions}
        known = {name: annotation for name, annotation in annotations.items() if annotation is not None}
        if len(known) != len(annotations):
            raise DataError("the questions of this split come without answers; use another split, or submit to EvalAI")
        return known

    def score(self, predictions: Mapping[str, str]) -> dict[str, float | None]:
        """Percentages of the official evaluation: `accuracy` of all, then of each type of answer, then of question."""
        scores = evaluate_vqa(predictions, self.annotations)
        types = scores.question_types if self.by_type else {}
        return {"accuracy": scores.overall, **scores.answer_types, **types}


@dataclass(frozen=True, eq=False)
class QuestionDataModule:
    """A data set of questions in use.

    max_text_length: the length of every row of question words. vectors: first vectors of the words `(V, E)`, or None.
    """

    train: QuestionDataset
    validation: QuestionDataset
    vocabulary: QuestionVocabulary
    answers: AnswerVocabulary
    feature_dim: int
    has_boxes: bool
    max_text_length: int
    vectors: np.ndarray | None = None


def stored_questions(questions: Sequence[Question], store: ConcatFeatureStore) -> QuestionDataset:
    """Questions about images whose features are in stores."""
    read = store.reader([question.image for question in questions])
    return QuestionDataset(tuple(questions), read, store.source, store.extractor)


def question_rows(
    questions: Iterable[Question], vocabulary: QuestionVocabulary, max_text_length: int
) -> Int[Tensor, "Q L"]:
    """Return the words of questions as rows of ids, padded with 0."""
    return encode_tokens((tokenize_question(question.text) for question in questions), vocabulary, max_text_length)


@dataclass(frozen=True, eq=False)
class EncodedQuestions:
    """The questions of a split as ids, and the soft targets of their answers.

    tokens `(Q, L)` int64, padded with 0. Question q has answer_ids[offsets[q] : offsets[q + 1]] with their `scores`;
    answers outside the vocabulary are left out, so that a question may have none.
    """

    tokens: Int[Tensor, "Q L"]
    answer_ids: np.ndarray
    scores: np.ndarray
    offsets: np.ndarray
    answer_count: int

    @staticmethod
    def of(
        split: QuestionDataset, vocabulary: QuestionVocabulary, answers: AnswerVocabulary, max_text_length: int
    ) -> EncodedQuestions:
        """Questions cut at `max_text_length` words; DataError where the split comes without answers."""
        ids, scores, offsets = [], [], [0]
        for annotation in split.annotations.values():
            for answer, score in soft_targets(annotation.answers).items():
                if answer in answers.ids:
                    ids.append(answers.ids[answer])
                    scores.append(score)
            offsets.append(len(ids))
        rows = question_rows(split.questions, vocabulary, max_text_length)
        return EncodedQuestions(
            rows, np.array(ids, np.int64), np.array(scores, np.float32), np.array(offsets), len(answers)
        )

    def targets(self, positions: np.ndarray) -> Float[Tensor, "B A"]:
        """Return the soft target of each answer, 0 to 1, for the questions at these positions."""
        import torch

        rows = np.zeros((len(positions), self.answer_count), np.float32)
        for row, position in zip(rows, positions, strict=True):
            answers = slice(*self.offsets[position : position + 2])
            row[self.answer_ids[answers]] = self.scores[answers]
        return torch.from_numpy(rows)
