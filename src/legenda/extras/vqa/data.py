"""Visual question answering: VQA v2, Visual Genome, DAQUAR and scenes; their files, data sets and objective."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from legenda.config import Count
from legenda.data.registry import choose_split, hold_out
from legenda.data.scenes import FEATURE_DIM
from legenda.data.scenes.dataset import SceneCounts, scene_reader
from legenda.errors import DataError
from legenda.extras.vqa.co_attention import (
    CoAttentionDataModule,
    CoAttentionDataset,
    CoAttentionObjective,
    CoAttentionTask,
    StoredData,
    iter_batches,
    words_of,
)
from legenda.extras.vqa.metric import Annotation, evaluate_vqa, normalize_answer, read_annotations, soft_targets
from legenda.extras.vqa.model import Mcan
from legenda.extras.vqa.scenes import MOST_WORDS, PER_SCENE, ask
from legenda.features.readers import open_stores
from legenda.io import get_field, read_json, read_text, verified, write_json
from legenda.results import EvaluationResult, Example, Prediction, mean_with_ci, means_by_group
from legenda.run_folder import ANSWERS
from legenda.tasks.base import Batch, Loss, PreparedBatch, batch_to_regions, check_boxes, regions_to_batch
from legenda.text.annotations import entries_of
from legenda.text.tokenizers import tokenize_question
from legenda.text.vocabulary import AnswerVocabulary, QuestionVocabulary, read_answers

PEOPLE = 10
"""How many people answer a question of VQA; a single answer counts as that of all of them."""

_QUESTIONS = "name a file of questions as the VQA data set has them"
_ANNOTATIONS = "name a file of annotations as the VQA data set has them"


@dataclass(frozen=True)
class Question:
    """One question about one image.

    id: unique in its split; image: the image as feature stores name it, or its number in COCO; annotation: what
    people answered, None where a test set withholds it.
    """

    id: str
    image: str
    text: str
    annotation: Annotation | None

    @property
    def tokens(self) -> list[str]:
        """The words of the question."""
        return tokenize_question(self.text)


def read_vqa(path: Path, annotations: Path | None = None) -> list[Question]:
    """Read questions in the layout of VQA v2, and their annotations where there are some, in the file's order.

    Visual Genome's pairs, as MCAN's authors hand them out, have the same layout. Both files may be gzipped.
    Raises DataError, naming the file and the key, for what is missing or of the wrong type, for a question given twice,
    and for one without annotation.
    """
    answered: dict[str, Annotation] = {}
    if annotations is not None:
        content = read_json(annotations, _ANNOTATIONS)
        entries = get_field(content, "annotations", list, str(annotations), _ANNOTATIONS)
        answered = read_annotations(entries, f"{annotations}: ")
    by_id: dict[str, Question] = {}
    for where, entry in entries_of(read_json(path, _QUESTIONS), "questions", path, _QUESTIONS):
        name, image = (str(get_field(entry, key, int | str, where, _QUESTIONS)) for key in ("question_id", "image_id"))
        text = get_field(entry, "question", str, where, _QUESTIONS)
        if name in by_id:
            raise DataError(f"{path} has question {name} twice; leave one of them out")
        if annotations is not None and name not in answered:
            raise DataError(f"{annotations} has no annotation of question {name}; name the file of the same split")
        by_id[name] = Question(name, image, text, answered.get(name))
    if not by_id:
        raise DataError(f"{path} holds no questions; {_QUESTIONS}")
    return list(by_id.values())


def read_main_answers(path: Path) -> list[str]:
    """Return the normalized `multiple_choice_answer` of each of VQA's annotations."""
    entries = entries_of(read_json(path, _ANNOTATIONS), "annotations", path, _ANNOTATIONS)
    answers = (get_field(entry, "multiple_choice_answer", str, where, _ANNOTATIONS) for where, entry in entries)
    return list(map(normalize_answer, answers))


def read_daquar(path: Path) -> list[Question]:
    """Read a CSV of DAQUAR with the columns question, answer and image_id; a question's id is its row from 0 on.

    The one answer stands for all ten people, normalized, so that the official accuracy counts the predictions that are
    equal to it. Answers that list several things are one answer each. The type of a question is its first two words.
    Raises DataError, naming the file and the row, for what is missing.
    """
    text = read_text(path, "name a CSV of DAQUAR").removeprefix("\ufeff")
    reader = csv.DictReader(io.StringIO(text, newline=""))
    rows = verified(lambda: list(reader), path, "check its quotation marks")
    questions = []
    for number, row in enumerate(rows):
        values = [row.get(name) for name in ("question", "answer", "image_id")]
        question, answer, image = (value.strip() if isinstance(value, str) else "" for value in values)
        if not (question and answer and image):
            raise DataError(f"{path}: row {number + 1} lacks a question, answer or image_id; these columns are needed")
        answer = normalize_answer(answer)
        answer_type = "number" if answer.isdecimal() else "other"
        annotation = Annotation((answer,) * PEOPLE, " ".join(question.lower().split()[:2]), answer_type)
        questions.append(Question(str(number), image, question, annotation))
    if not questions:
        raise DataError(f"{path} holds no questions; name a CSV of DAQUAR")
    return questions


def write_vqa_results(path: str | Path, predictions: Mapping[str, str]) -> None:
    """Write answers as EvalAI takes them: a list of objects with `answer` and `question_id`, a number if it is one."""
    ids = {name: int(name) if name.isdecimal() else name for name in predictions}
    write_json(path, [{"question_id": ids[name], "answer": answer} for name, answer in predictions.items()])


@dataclass(frozen=True, eq=False)
class QuestionDataset(CoAttentionDataset):
    """One split of `Question`s; by_type: whether `score` also returns the accuracy of each type of question."""

    by_type: bool = False

    @property
    def missing_targets(self) -> str | None:
        """Return "answers" where no question has one, so that nothing can be scored; else None."""
        return None if any(question.annotation is not None for question in self.examples) else "answers"

    @cached_property
    def annotations(self) -> dict[str, Annotation]:
        """The human answers, by question; raise DataError where a question has none."""
        annotations = {question.id: question.annotation for question in self.examples}
        known = {name: annotation for name, annotation in annotations.items() if annotation is not None}
        if len(known) != len(annotations):
            raise DataError("the questions of this split come without answers; use another split, or submit to EvalAI")
        return known

    def score(self, predictions: Mapping[str, str]) -> dict[str, float | None]:
        """Percentages of the official evaluation: `accuracy` of all, then of each type of answer, then of question."""
        scores = evaluate_vqa(predictions, self.annotations)
        types = scores.question_types if self.by_type else {}
        return {"accuracy": scores.overall, **scores.answer_types, **types}


_VOCAB_SPLITS = ("train", "val", "test", "vg")
"""The files whose questions make the vocabulary, in this order, where they are there."""


class VqaData(StoredData):
    """VQA v2 under its official file names, and feature stores of COCO's images."""

    kind: Literal["vqa"] = "vqa"
    questions: Path
    """The folder of v2_OpenEnded_mscoco_*_questions.json, v2_mscoco_*_annotations.json and, for VG,
    VG_questions.json and VG_annotations.json; .gz of any."""
    train: Literal["train", "train+val", "train+val+vg"] = "train"
    """The training questions; with val among them, the accuracy on val is meaningless, and test is for EvalAI."""
    validation: Literal["held_out", "val"] = "held_out"
    """What selects the best model: every 50th image of train, whose questions are then not trained on; or val, which
    tables score, as in the releases."""
    answers: Path | None = None
    """A JSON list of answers, such as answer_dict.json; without it, those seen more than 8 times in train and val."""
    with_cls: bool = False
    """Whether the vocabulary has OpenVQA's third special word, which its counts of parameters include."""

    dataset = QuestionDataset

    def open(self, progress: Callable[[str], None]) -> CoAttentionDataModule:
        """Read questions and answers and open the features."""
        progress(f"reading {self.questions}")
        needed = [*self.train.split("+"), "val"]
        parts = {name: self._part(name) for name in _VOCAB_SPLITS if name in needed or self._files(name)[0].exists()}
        words = (question.tokens for part in parts.values() for question in part)
        vocabulary = QuestionVocabulary.build(words, with_cls=self.with_cls)
        if self.validation == "held_out":
            held_out, parts["train"] = hold_out(parts["train"])
        else:
            held_out = parts["val"]
        train = [question for name in self.train.split("+") for question in parts[name]]
        return self.load(train, held_out, vocabulary, self._answers())

    def split(self, name: str) -> QuestionDataset:
        """train, val, vg, test or test-dev; the last two come without answers."""
        read = choose_split(dict.fromkeys((*_VOCAB_SPLITS, "test-dev"), self._part), name, "VQA")
        return QuestionDataset.stored(read(name), open_stores(self.features))

    def _part(self, name: str) -> list[Question]:
        questions = read_vqa(*self._files(name))
        return [replace(question, id=f"vg-{question.id}") for question in questions] if name == "vg" else questions

    def _answers(self) -> AnswerVocabulary:
        if self.answers is not None:
            return read_answers(self.answers)
        files = [file for name in ("train", "val") if (file := self._files(name)[1]) is not None]
        return AnswerVocabulary.build(chain.from_iterable(map(read_main_answers, files)))

    def _files(self, name: str) -> tuple[Path, Path | None]:
        """Questions and annotations of a part; the latter None for test sets."""
        if name == "vg":
            return self._file("VG_questions.json"), self._file("VG_annotations.json")
        year = "2015" if name.startswith("test") else "2014"
        questions = self._file(f"v2_OpenEnded_mscoco_{name}{year}_questions.json")
        return questions, None if year == "2015" else self._file(f"v2_mscoco_{name}{year}_annotations.json")

    def _file(self, name: str) -> Path:
        zipped = self.questions / f"{name}.gz"
        return zipped if zipped.exists() else self.questions / name


class DaquarData(StoredData):
    """DAQUAR's questions about indoor scenes, and a feature store of its images under their ids, as image12.

    The splits share no image, unlike those of the CSVs data_train and data_eval: test are the questions about the
    images of test_images_list.txt, val those about every tenth image of train_images_list.txt, train the others.
    """

    kind: Literal["daquar"] = "daquar"
    questions: Path
    """The folder of data.csv, train_images_list.txt and test_images_list.txt."""
    max_text_length: Count = 20

    dataset = QuestionDataset

    def open(self, progress: Callable[[str], None]) -> CoAttentionDataModule:
        """Read the questions and open the features; the words and the answers are those of train."""
        progress(f"reading {self.questions}")
        parts = self._parts()
        train = parts["train"]
        answers = [question.annotation.answers[0] for question in train if question.annotation is not None]
        return self.load(train, parts["val"], words_of(train), AnswerVocabulary.build(answers, min_count=1))

    def split(self, name: str) -> QuestionDataset:
        """train, val or test."""
        return QuestionDataset.stored(choose_split(self._parts(), name, "DAQUAR"), open_stores(self.features))

    def _parts(self) -> dict[str, list[Question]]:
        questions = read_daquar(self.questions / "data.csv")
        train, test = (read_text(self.questions / f"{name}_images_list.txt").split() for name in ("train", "test"))
        splits = dict.fromkeys(train, "train") | dict.fromkeys(train[9::10], "val") | dict.fromkeys(test, "test")
        parts: dict[str, list[Question]] = {"train": [], "val": [], "test": []}
        for question in questions:
            if question.image not in splits:
                raise DataError(
                    f"{self.questions / 'data.csv'} asks about '{question.image}', which is in neither list of images; "
                    "add it to train_images_list.txt or test_images_list.txt"
                )
            parts[splits[question.image]].append(question)
        empty = next((name for name, part in parts.items() if not part), None)
        if empty is not None:
            raise DataError(f"{self.questions} has no questions in the split {empty}; check its lists of images")
        return parts


class SceneQuestionsData(SceneCounts):
    """Questions about the embedded scenes: four of each, three of which need boxes.

    See `legenda.extras.vqa.scenes`; `score` also returns the accuracy of each question type.
    """

    kind: Literal["scene_questions"] = "scene_questions"
    examples_each: ClassVar[int] = PER_SCENE

    def open(self, progress: Callable[[str], None]) -> CoAttentionDataModule:
        """Draw the scenes, find their regions in the pixels and ask about them."""
        progress(f"drawing {self.train} scenes for training and {self.validation} for validation")
        train, validation = self.split("train"), self.split("val")
        given = (annotation.answers[0] for annotation in train.annotations.values())
        answers = AnswerVocabulary.build(given, min_count=1)
        words = words_of(train.examples)
        return CoAttentionDataModule(train, validation, words, FEATURE_DIM, MOST_WORDS, answers=answers)

    def split(self, name: str) -> QuestionDataset:
        """Return the questions about the scenes of a split, each with its one answer as that of all people."""
        drawn, questions, scenes = self.generate(name), [], []
        for index, scene in enumerate(drawn.scenes):
            for number, asked in enumerate(ask(scene)):
                annotation = Annotation((asked.answer,) * PEOPLE, asked.question_type, asked.answer_type)
                questions.append(Question(f"{scene.id}-{number}", scene.id, asked.text, annotation))
                scenes.append(index)
        return QuestionDataset(tuple(questions), scene_reader(drawn, scenes), "scenes", "scenes", by_type=True)


_CORRECT = 0.5
"""Accuracy from which a report calls an answer correct: two of ten annotators gave it."""


class AnswerObjective(CoAttentionObjective):
    """Binary cross-entropy of every answer, summed over answers and questions as in MCAN's release.

    Each chunk is weighted by its fraction of a step, so that the loss of a step is the sum over its questions for any
    number of devices and accumulation steps.
    """

    model: Mcan

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
        return PreparedBatch((), (len(indices) / self.config.batch_size,), lambda total: Loss((total,)))

    def forward(self, batch: Batch, *prepared: Tensor | None) -> Float[Tensor, ""]:
        """Return the sum over all answers and questions."""
        del prepared
        logits = self.model(batch_to_regions(batch), batch["question"])
        return F.binary_cross_entropy_with_logits(logits, batch["targets"], reduction="sum")


class Vqa(CoAttentionTask):
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

    def create(self, model: str, options: Mapping[str, Any], init_from: Path | None = None) -> Mcan:
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
    def predict(model: Mcan, split: QuestionDataset, indices: np.ndarray, *, beam_size: int) -> dict[str, str]:
        """Return the most probable answers; there is no search, so `beam_size` is ignored."""
        del beam_size
        answers: dict[str, str] = {}
        for questions, regions in iter_batches(model, split, indices):
            predicted = model.answer(regions, [question.text for question in questions])
            answers |= zip((question.id for question in questions), predicted, strict=True)
        return answers

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
    def score_with_intervals(predictions: Mapping[str, Any], split: QuestionDataset) -> EvaluationResult:
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
        predictions: Mapping[str, Any],
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
