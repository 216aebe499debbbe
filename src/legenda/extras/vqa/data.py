"""Visual question answering: VQA v2, Visual Genome, DAQUAR and scenes; their files and data sets.

Some questions about scenes depend on boxes, the controls on the kinds of things only:

    near, size, stand            which is next to which, which is larger, how two are aligned: not in the features
    count, existence, color, shape      the controls

A model that cannot read boxes can only guess the first three among the kinds that a scene shows.
"""

from __future__ import annotations

import csv
import io
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import ClassVar, Literal

from legenda.config import Count, Id, get_field
from legenda.data.registry import choose_split, hold_out
from legenda.data.scenes import FEATURE_DIM, SCENES
from legenda.data.scenes.language import AXIS_WORDS, shuffled_pair
from legenda.data.scenes.pixels import SceneCounts, scene_reader
from legenda.data.scenes.scene import COLORS, SHAPES, Axis, Scene, Thing, axis_of
from legenda.errors import DataError
from legenda.extras.vqa.co_attention import (
    CoAttentionDataModule,
    CoAttentionDataset,
    StoredData,
    words_of,
)
from legenda.extras.vqa.text import AnswerVocabulary, QuestionVocabulary, read_answers, tokenize_question
from legenda.features.readers import open_stores
from legenda.io import read_json, read_text, verified
from legenda.metrics.vqa import Annotation, evaluate_vqa, normalize_answer, parse_answers
from legenda.terminal import counted

QuestionType = Literal["near", "size", "stand", "count", "existence", "color", "shape"]

PER_SCENE = 4
"""Questions of one scene: three about what its family is about, one control."""
_MOST_WORDS = 10
"""Words of the longest question."""


@dataclass(frozen=True)
class SceneQuestion:
    """A question about a scene and its one answer, in lower case with digits for numbers."""

    text: str
    answer: str
    question_type: QuestionType

    @property
    def answer_type(self) -> str:
        """The kind of the answer as VQA sorts them: yes/no, number or other."""
        if self.answer in ("yes", "no"):
            return "yes/no"
        return "number" if self.answer.isdecimal() else "other"


def ask(scene: Scene) -> tuple[SceneQuestion, ...]:
    """Return PER_SCENE questions about a scene, always the same for it."""
    rng = random.Random(f"questions-{scene.id}")
    match scene.family:
        case "near":
            about = _near(rng, scene)
        case "size":
            about = _size(rng, scene)
        case "bind":
            about = _stand(rng, scene)
        case _:
            raise DataError(
                f"there are no questions about scenes of the family {scene.family}; choose near, size or bind"
            )
    return *about, _control(rng, scene)


def _near(rng: random.Random, scene: Scene) -> list[SceneQuestion]:
    """Return questions about the neighbor, its color or shape, and whether it is a certain thing."""
    thing, other = shuffled_pair(rng, scene)
    kind = SceneQuestion(f"what is next to the {_named(thing)}?", _named(other), "near")
    thing, other = shuffled_pair(rng, scene)
    if rng.random() < 0.5:
        part = SceneQuestion(f"what color is the thing next to the {_named(thing)}?", other.color, "near")
    else:
        part = SceneQuestion(f"what shape is the thing next to the {_named(thing)}?", other.shape, "near")
    thing, other = shuffled_pair(rng, scene)
    true = rng.random() < 0.5
    asked = other if true else rng.choice([t for t in scene.things if t not in (thing, other)])
    words = [_named(thing), _named(asked)]
    rng.shuffle(words)
    whether = SceneQuestion(f"is the {words[0]} next to the {words[1]}?", _yes(true), "near")
    return [kind, part, whether]


def _size(rng: random.Random, scene: Scene) -> list[SceneQuestion]:
    large, small, shape = scene.first, scene.second, scene.first.shape
    first, second = shuffled_pair(rng, scene)
    word = rng.choice(("larger", "smaller"))
    true = (first == large) == (word == "larger")
    return [
        SceneQuestion(f"what color is the larger {shape}?", large.color, "size"),
        SceneQuestion(f"what color is the smaller {shape}?", small.color, "size"),
        SceneQuestion(f"is the {_named(first)} {word} than the {_named(second)}?", _yes(true), "size"),
    ]


def _stand(rng: random.Random, scene: Scene) -> list[SceneQuestion]:
    axis, color = axis_of(scene.first, scene.second), scene.first.color
    assert axis is not None, scene.id
    first, second = shuffled_pair(rng, scene)
    asked: Axis = rng.choice(("horizontal", "vertical"))
    return [
        SceneQuestion(f"how do the two {color} things stand?", AXIS_WORDS[axis], "stand"),
        SceneQuestion(f"how do the {first.shape} and the {second.shape} stand?", AXIS_WORDS[axis], "stand"),
        SceneQuestion(f"are the two {color} things {AXIS_WORDS[asked]}?", _yes(asked == axis), "stand"),
    ]


def _control(rng: random.Random, scene: Scene) -> SceneQuestion:
    """Return a question whose answer depends on the kinds of things only."""
    match rng.randrange(4):
        case 0:
            return SceneQuestion("how many things are there?", str(len(scene.things)), "count")
        case 1:
            kinds = {thing.kind for thing in scene.things}
            there = rng.choice(sorted(kinds))
            missing = rng.choice([(c, s) for c in COLORS for s in SHAPES if (c, s) not in kinds])
            true = rng.random() < 0.5
            return SceneQuestion(f"is there a {' '.join(there if true else missing)}?", _yes(true), "existence")
        case 2:
            thing = _only(rng, scene, "shape")
            return SceneQuestion(f"what color is the {thing.shape}?", thing.color, "color")
        case _:
            thing = _only(rng, scene, "color")
            return SceneQuestion(f"what shape is the {thing.color} thing?", thing.shape, "shape")


def _only(rng: random.Random, scene: Scene, part: Literal["color", "shape"]) -> Thing:
    """Return a thing whose color, or shape, is unique in the scene."""
    parts = [getattr(thing, part) for thing in scene.things]
    return rng.choice([thing for thing in scene.things if parts.count(getattr(thing, part)) == 1])


def _named(thing: Thing) -> str:
    return f"{thing.color} {thing.shape}"


def _yes(true: bool) -> str:
    return "yes" if true else "no"


PEOPLE = 10
"""How many people answer a question of VQA; a single answer counts as that of all of them."""


@dataclass(slots=True)
class _VqaQuestion:
    question_id: Id
    image_id: Id
    question: str


@dataclass(slots=True)
class _VqaAnswer:
    multiple_choice_answer: str


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
        content = get_field(read_json(annotations, _ANNOTATIONS), "annotations", list, annotations, _ANNOTATIONS)
        answered = parse_answers(content, f"{annotations}: ")
    by_id: dict[str, Question] = {}
    for entry in get_field(read_json(path, _QUESTIONS), "questions", list[_VqaQuestion], path, _QUESTIONS):
        name = entry.question_id
        if name in by_id:
            raise DataError(f"{path} has question {name} twice; leave one of them out")
        if annotations is not None and name not in answered:
            raise DataError(f"{annotations} has no annotation of question {name}; name the file of the same split")
        by_id[name] = Question(name, entry.image_id, entry.question, answered.get(name))
    if not by_id:
        raise DataError(f"{path} holds no questions; {_QUESTIONS}")
    return list(by_id.values())


def read_main_answers(path: Path) -> list[str]:
    """Return the normalized `multiple_choice_answer` of each of VQA's annotations."""
    answers = get_field(read_json(path, _ANNOTATIONS), "annotations", list[_VqaAnswer], path, _ANNOTATIONS)
    return [normalize_answer(entry.multiple_choice_answer) for entry in answers]


def _read_daquar(path: Path) -> list[Question]:
    """Read a CSV of DAQUAR with the columns question, answer and image_id; a question's id is its row from 0 on.

    The one answer stands for all ten people, normalized, so that the official accuracy counts the predictions that are
    equal to it. Answers that list several things are one answer each. The type of a question is its first two words.
    Raises DataError, naming the file and the row, for what is missing.
    """
    text = read_text(path, "name a CSV of DAQUAR")
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


@dataclass(frozen=True, eq=False)
class QuestionDataset(CoAttentionDataset[Question, str]):
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
        """Return the percentages of the official evaluation: `accuracy`, then by type of answer and of question."""
        scores = evaluate_vqa(predictions, self.annotations)
        types = scores.question_types if self.by_type else {}
        return {"accuracy": scores.overall, **scores.answer_types, **types}


_VOCAB_SPLITS = ("train", "val", "test", "vg")
"""The files whose questions make the vocabulary, in this order, where they are there."""


class VqaData(StoredData[QuestionDataset]):
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
        """Return the split train, val, vg, test or test-dev; the last two come without answers."""
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
        """Return the files of questions and annotations of a part; None in place of annotations for test sets."""
        if name == "vg":
            return self._file("VG_questions.json"), self._file("VG_annotations.json")
        year = "2015" if name.startswith("test") else "2014"
        questions = self._file(f"v2_OpenEnded_mscoco_{name}{year}_questions.json")
        return questions, None if year == "2015" else self._file(f"v2_mscoco_{name}{year}_annotations.json")

    def _file(self, name: str) -> Path:
        zipped = self.questions / f"{name}.gz"
        return zipped if zipped.exists() else self.questions / name


class DaquarData(StoredData[QuestionDataset]):
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
        """Return the split train, val or test."""
        return QuestionDataset.stored(choose_split(self._parts(), name, "DAQUAR"), open_stores(self.features))

    def _parts(self) -> dict[str, list[Question]]:
        questions = _read_daquar(self.questions / "data.csv")
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


class SceneQuestionsData(SceneCounts[QuestionDataset]):
    """Questions about the embedded scenes: four of each, three of which need boxes.

    See `ask`; `score` also returns the accuracy of each question type.
    """

    kind: Literal["scene_questions"] = "scene_questions"
    examples_each: ClassVar[int] = PER_SCENE

    def open(self, progress: Callable[[str], None]) -> CoAttentionDataModule:
        """Draw the scenes, find their regions in the pixels and ask about them."""
        progress(f"drawing {counted(self.train, 'scenes')} for training and {self.validation} for validation")
        train, validation = self.split("train"), self.split("val")
        seen = (annotation.answers[0] for annotation in train.annotations.values())
        answers = AnswerVocabulary.build(seen, min_count=1)
        words = words_of(train.examples)
        return CoAttentionDataModule(train, validation, words, FEATURE_DIM, _MOST_WORDS, answers=answers)

    def split(self, name: str) -> QuestionDataset:
        """Return the questions about the scenes of a split, each with its one answer as that of all people."""
        drawn, questions, scenes = self.generate(name), [], []
        for index, scene in enumerate(drawn.scenes):
            for number, asked in enumerate(ask(scene)):
                annotation = Annotation((asked.answer,) * PEOPLE, asked.question_type, asked.answer_type)
                questions.append(Question(f"{scene.id}-{number}", scene.id, asked.text, annotation))
                scenes.append(index)
        return QuestionDataset(tuple(questions), scene_reader(drawn, scenes), "scenes", SCENES, by_type=True)
