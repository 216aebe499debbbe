"""The data settings of visual questions: VQA v2, DAQUAR or the embedded scenes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import ClassVar, Literal

from legenda.config import Config
from legenda.data.features.concat import ConcatFeatureStore
from legenda.data.questions import QuestionDataModule, QuestionDataset, stored_questions
from legenda.data.scenes import FEATURE_DIM, SceneSplit
from legenda.data.scenes.dataset import SceneCounts
from legenda.data.scenes.questions import MOST_WORDS, PER_SCENE, ask
from legenda.data.scenes.reader import scene_reader
from legenda.data.splits import choose_split
from legenda.data.vqa import (
    PEOPLE,
    Question,
    read_daquar,
    read_main_answers,
    read_vqa,
    read_word_vectors,
)
from legenda.errors import DataError
from legenda.io import read_text
from legenda.metrics.vqa import Annotation
from legenda.text.tokenizers import tokenize_question
from legenda.text.vocabulary import AnswerVocabulary, QuestionVocabulary, read_answers

_VOCAB_SPLITS = ("train", "val", "test", "vg")
"""The files whose questions make the vocabulary, in this order, where they are there."""


class VqaData(Config):
    """VQA v2 under its official file names, and feature stores of COCO's images."""

    kind: Literal["vqa"] = "vqa"
    questions: Path
    """The folder of v2_OpenEnded_mscoco_*_questions.json, v2_mscoco_*_annotations.json and, for VG,
    VG_questions.json and VG_annotations.json; .gz of any."""
    features: tuple[Path, ...]
    """Stores made by `legenda extract` or `convert`, or any that the latter reads; MCAN's folders of .npz are."""
    train: Literal["train", "train+val", "train+val+vg"] = "train"
    """The training questions; with val among them, the accuracy on val is meaningless, and test is for EvalAI."""
    answers: Path | None = None
    """A JSON list of answers, such as answer_dict.json; without it, those seen more than 8 times in train and val."""
    vectors: Path | None = None
    """Initial word vectors, a text file in GloVe's layout; random if None."""
    max_text_length: int = 14
    """Words of a question that are read."""
    with_cls: bool = False
    """Return whether the vocabulary has OpenVQA's third special word, which its counts of parameters include."""

    def open(self, progress: Callable[[str], None]) -> QuestionDataModule:
        """Read questions and answers and open the features."""
        progress(f"reading {self.questions}")
        store = ConcatFeatureStore.open(self.features)
        needed = [*self.train.split("+"), "val"]
        parts = {name: self._part(name) for name in _VOCAB_SPLITS if name in needed or self._files(name)[0].exists()}
        texts = [question.text for part in parts.values() for question in part]
        vocabulary = QuestionVocabulary.build(map(tokenize_question, texts), with_cls=self.with_cls)
        return QuestionDataModule(
            train=stored_questions([q for name in self.train.split("+") for q in parts[name]], store),
            validation=stored_questions(parts["val"], store),
            vocabulary=vocabulary,
            answers=self._answers(),
            feature_dim=store.feature_dim,
            has_boxes=store.has_boxes,
            max_text_length=self.max_text_length,
            vectors=None if self.vectors is None else read_word_vectors(self.vectors, vocabulary.tokens),
        )

    def split(self, name: str) -> QuestionDataset:
        """train, val, vg, test or test-dev; the last two come without answers."""
        read = choose_split(dict.fromkeys((*_VOCAB_SPLITS, "test-dev"), self._part), name, "VQA")
        return stored_questions(read(name), ConcatFeatureStore.open(self.features))

    def _part(self, name: str) -> list[Question]:
        found = read_vqa(*self._files(name))
        return [replace(question, id=f"vg-{question.id}") for question in found] if name == "vg" else found

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


class DaquarData(Config):
    """DAQUAR's questions about indoor scenes, and a feature store of its images.

    The splits share no image, unlike those of the CSVs data_train and data_eval: test are the questions about the
    images of test_images_list.txt, val those about every tenth image of train_images_list.txt, train the others.
    """

    kind: Literal["daquar"] = "daquar"
    questions: Path
    """The folder of data.csv, train_images_list.txt and test_images_list.txt."""
    features: tuple[Path, ...]
    """Stores of the images under their ids, as image12."""
    max_text_length: int = 20
    """Words of a question that are read."""

    def open(self, progress: Callable[[str], None]) -> QuestionDataModule:
        """Read the questions and opens the features; the words and the answers are those of train."""
        progress(f"reading {self.questions}")
        store = ConcatFeatureStore.open(self.features)
        parts = self._parts()
        train = parts["train"]
        answers = [question.annotation.answers[0] for question in train if question.annotation is not None]
        return QuestionDataModule(
            train=stored_questions(train, store),
            validation=stored_questions(parts["val"], store),
            vocabulary=QuestionVocabulary.build(tokenize_question(question.text) for question in train),
            answers=AnswerVocabulary.build(answers, min_count=1),
            feature_dim=store.feature_dim,
            has_boxes=store.has_boxes,
            max_text_length=self.max_text_length,
        )

    def split(self, name: str) -> QuestionDataset:
        """train, val or test."""
        part = choose_split(self._parts(), name, "DAQUAR")
        return stored_questions(part, ConcatFeatureStore.open(self.features))

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

    See `legenda.data.scenes.questions`; `score` also returns the accuracy of each question type.
    """

    kind: Literal["scene_questions"] = "scene_questions"
    examples_each: ClassVar[int] = PER_SCENE

    def open(self, progress: Callable[[str], None]) -> QuestionDataModule:
        """Draw the scenes, find their regions in the pixels and ask about them."""
        progress(f"drawing {self.train} scenes for training and {self.validation} for validation")
        train, validation = self.split("train"), self.split("val")
        vocabulary = QuestionVocabulary.build(tokenize_question(question.text) for question in train.questions)
        answers = AnswerVocabulary.build(
            (annotation.answers[0] for annotation in train.annotations.values()), min_count=1
        )
        return QuestionDataModule(train, validation, vocabulary, answers, FEATURE_DIM, True, MOST_WORDS)

    def split(self, name: str) -> QuestionDataset:
        """Return the questions about the scenes of a split."""
        return scene_questions(self.generate(name))


def scene_questions(scene_split: SceneSplit) -> QuestionDataset:
    """Scenes as a set of questions, each with its one answer as that of all people."""
    questions, scenes = [], []
    for index, scene in enumerate(scene_split.scenes):
        for number, asked in enumerate(ask(scene)):
            annotation = Annotation((asked.answer,) * PEOPLE, asked.question_type, asked.answer_type)
            questions.append(Question(f"{scene.id}-{number}", scene.id, asked.text, annotation))
            scenes.append(index)
    return QuestionDataset(tuple(questions), scene_reader(scene_split, scenes), "scenes", "scenes", by_type=True)
