"""The accuracy of visual question answering, equal to the official evaluation (GT-Vision-Lab/VQA, vqaEval.py).

A prediction is compared with the answers of ten annotators: each one who agrees contributes a third, up to 1. All
values are equal to those of the official program, including its irregularities.
"""

import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from typing import Annotated, TypeVar

from pydantic import BeforeValidator, Field

from legenda.config import Id, conform
from legenda.errors import DataError

__all__ = ["Annotation", "VqaScores", "evaluate_vqa", "normalize_answer", "vqa_accuracy"]

T = TypeVar("T")
_MARKS = ';/[]"{}()=+\\_-><@`,?!'
_GROUPED = re.compile(r"\d,\d")
_FULL_STOP = re.compile(r"\.(?!\d)")
_MAX_FULL_STOPS = 32
"""The official program passes re.UNICODE, which is 32, as the number of replacements."""
_NUMBER_WORDS = "zero one two three four five six seven eight nine ten"
_NUMBERS = {"none": "0"} | {word: str(number) for number, word in enumerate(_NUMBER_WORDS.split())}
_ARTICLES = ("a", "an", "the")
_TARGETS = (0.0, 0.3, 0.6, 0.9, 1.0)


@cache
def _contractions() -> dict[str, str]:
    """Return the official replacement of each word without apostrophes, by the word in lower case."""
    table = tomllib.loads(files("legenda.metrics").joinpath("contractions.toml").read_text(encoding="utf-8"))
    return {word.replace("'", ""): word for word in table["with_apostrophes"].split()} | table["irregular"]


@lru_cache(maxsize=1 << 16)  # answers repeat often
def normalize_answer(text: str) -> str:
    """Return an answer as the official evaluation compares it.

    It is in lower case, without articles and most punctuation, with digits for number words up to ten and with restored
    apostrophes. A punctuation mark is removed where the text contains it next to a space, or contains a comma between
    digits; otherwise it becomes a space. The first 32 full stops that no digit follows are removed.
    """
    text = _plain(text)
    grouped = _GROUPED.search(text) is not None
    cleaned = text
    for mark in _MARKS:
        next_to_space = f"{mark} " in text or f" {mark}" in text
        cleaned = cleaned.replace(mark, "" if next_to_space or grouped else " ")
    cleaned = _FULL_STOP.sub("", cleaned, count=_MAX_FULL_STOPS)
    words = (_NUMBERS.get(word, word) for word in cleaned.lower().split())
    return " ".join(_contractions().get(word, word) for word in words if word not in _ARTICLES)


def vqa_accuracy(prediction: str, answers: Sequence[str]) -> float:
    """Return the accuracy of a prediction, in 0..1, given the answers of (ten) annotators.

    It is the mean over annotators of min(1, n / 3), where n of the *other* annotators gave the predicted answer. All
    answers are normalized, unless all annotators gave the same one, in which case they are compared without surrounding
    white space. Raise DataError where there are no answers.
    """
    return round(_accuracy(prediction, answers), 12)


def _accuracy(prediction: str, answers: Sequence[str]) -> float:
    """Return the accuracy without rounding, summed in the official program's order, which affects the means."""
    if not answers:
        raise DataError("a prediction needs at least one annotated answer to be compared with; give the answers")
    prediction, expected = _plain(prediction), [_plain(answer) for answer in answers]
    if len(set(expected)) > 1:
        prediction, expected = normalize_answer(prediction), [normalize_answer(answer) for answer in expected]
    agrees = [answer == prediction for answer in expected]
    count = sum(agrees)
    return sum(min(1.0, (count - agreement) / 3) for agreement in agrees) / len(agrees)


def soft_targets(answers: Iterable[str]) -> dict[str, float]:
    """Return the training target of each normalized answer: 0.3, 0.6, 0.9 or 1 for 1, 2, 3 or more annotators.

    It is the accuracy of an answer that so many of ten annotators gave.
    """
    counts = Counter(normalize_answer(answer) for answer in answers)
    return {answer: _TARGETS[min(count, len(_TARGETS) - 1)] for answer, count in counts.items()}


def _texts(answers: object) -> object:
    """Return answers in a list, which are text or objects with `answer`, as text."""
    if not isinstance(answers, list | tuple):
        return answers
    return [answer.get("answer") if isinstance(answer, Mapping) else answer for answer in answers]


@dataclass(frozen=True)
class Annotation:
    """The annotators' answers to one question, and the types by which its accuracy is averaged."""

    answers: Annotated[tuple[str, ...], BeforeValidator(_texts), Field(min_length=1)]
    question_type: str
    answer_type: str


@dataclass(frozen=True)
class _Annotated(Annotation):
    question_id: Id


@dataclass(frozen=True)
class _Answer:
    question_id: Id
    answer: str


@dataclass(frozen=True)
class VqaScores:
    """Percentages with two decimals, rounded as in the official evaluation.

    overall: the mean over all questions. answer_types, question_types: the means within each type, in order of first
    occurrence. questions: the accuracy of each question.
    """

    overall: float
    answer_types: dict[str, float]
    question_types: dict[str, float]
    questions: dict[str, float]


def evaluate_vqa(predictions: object, annotations: object) -> VqaScores:
    """Return the scores of answers to questions.

    predictions: answers by question id (number or string), or a list of objects with `question_id` and `answer`, as for
        EvalAI.
    annotations: by question id, each an Annotation or an object with `answers`, `question_type` and `answer_type`; or
        the content of the official JSON file, or its list of `annotations`.
    Raise DataError, naming the question, where predictions and annotations are not of the same questions.
    """
    answers, truth = _parse_predictions(predictions), parse_answers(annotations)
    if not truth:
        raise DataError("there are no annotated questions to score answers with; give at least one")
    if missing := [question for question in truth if question not in answers]:
        raise DataError(f"question {missing[0]} has no prediction; answer every annotated question")
    if extra := [question for question in answers if question not in truth]:
        raise DataError(f"question {extra[0]} is answered but not annotated; leave it out")
    accuracy = {question: _accuracy(answers[question], annotation.answers) for question, annotation in truth.items()}

    def means(kinds: Iterable[str]) -> dict[str, float]:
        groups: dict[str, list[float]] = defaultdict(list)
        for kind, value in zip(kinds, accuracy.values(), strict=True):
            groups[kind].append(value)
        return {kind: _percent(values) for kind, values in groups.items()}

    by_answer = means(annotation.answer_type for annotation in truth.values())
    by_question = means(annotation.question_type for annotation in truth.values())
    return VqaScores(_percent(list(accuracy.values())), by_answer, by_question, means(accuracy))


def _parse_predictions(predictions: object) -> dict[str, str]:
    hint = "give answers as text by question, or a list of them as for EvalAI"
    if isinstance(predictions, Mapping):
        return _once(predictions, conform(predictions, dict[Id, str], "predictions", hint), "predictions")
    answers = conform(predictions, list[_Answer], "predictions", hint)
    return _once(answers, {entry.question_id: entry.answer for entry in answers}, "predictions")


def parse_answers(annotations: object, source: str = "") -> dict[str, Annotation]:
    """Return annotations in any form that `evaluate_vqa` takes by question id; source: begins messages about them."""
    name, hint = f"{source}annotations", "give annotations as the VQA data set has them"
    if isinstance(annotations, Mapping) and "annotations" in annotations:
        annotations = annotations["annotations"]
    if isinstance(annotations, Mapping):
        return _once(annotations, conform(annotations, dict[Id, Annotation], name, hint), name)
    entries = conform(annotations, list[_Annotated], name, hint)
    by_question = {e.question_id: Annotation(e.answers, e.question_type, e.answer_type) for e in entries}
    return _once(entries, by_question, name)


def _once(entries: Collection[object], by_question: dict[str, T], name: str) -> dict[str, T]:
    """Return entries by question; raise DataError where fewer are left than there were."""
    if len(by_question) < len(entries):
        ids = [str(getattr(entry, "question_id", entry)) for entry in entries]
        twice = next(question for question, count in Counter(ids).items() if count > 1)
        raise DataError(f"{name} have question {twice} twice; leave out one of them")
    return by_question


def _plain(text: str) -> str:
    return text.replace("\n", " ").replace("\t", " ").strip()


def _percent(values: Sequence[float]) -> float:
    return round(100 * sum(values) / len(values), 2)
