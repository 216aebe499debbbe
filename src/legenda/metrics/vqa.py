"""The accuracy of visual question answering, equal to the official evaluation (GT-Vision-Lab/VQA, vqaEval.py).

A prediction is compared with the answers of ten annotators: each one who agrees contributes a third, up to 1. All
values are equal to those of the official program, including its irregularities.
"""

import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

from legenda.errors import DataError
from legenda.io import get_field

__all__ = ["Annotation", "VqaScores", "evaluate_vqa", "normalize_answer", "vqa_accuracy"]

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
def contractions() -> dict[str, str]:
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
    return " ".join(contractions().get(word, word) for word in words if word not in _ARTICLES)


def vqa_accuracy(prediction: str, answers: Sequence[str]) -> float:
    """Return the accuracy of a prediction, in 0..1, given the answers of (ten) annotators.

    It is the mean over annotators of min(1, n / 3), where n of the *other* annotators gave the predicted answer. All
    answers are normalized, unless all annotators gave the same one, in which case they are compared without surrounding
    white space. Raise DataError where there are no answers.
    """
    return round(_accuracy(prediction, answers), 12)


def _accuracy(prediction: str, answers: Sequence[str]) -> float:
    """Return the same without rounding, summed in the official program's order, which affects the rounding of means."""
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


@dataclass(frozen=True)
class Annotation:
    """The annotators' answers to one question, and the types by which its accuracy is averaged."""

    answers: tuple[str, ...]
    question_type: str
    answer_type: str


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
    by_id = isinstance(predictions, Mapping)
    return {
        question: get_field({"answer": entry} if by_id else entry, "answer", str, where, "give the answer as text")
        for question, (where, entry) in _by_question(predictions, "prediction").items()
    }


def parse_answers(annotations: object, source: str = "") -> dict[str, Annotation]:
    """Return annotations in any form that `evaluate_vqa` takes by question id; source: begins messages about them."""
    if isinstance(annotations, Mapping) and "annotations" in annotations:
        annotations = annotations["annotations"]
    return {
        question: entry if isinstance(entry, Annotation) else _read_annotation(where, entry)
        for question, (where, entry) in _by_question(annotations, "annotation", source).items()
    }


def _by_question(content: Any, name: str, source: str = "") -> dict[str, tuple[str, object]]:
    """Return entries by question id, each with its name for messages, of a mapping or a list of objects with ids."""
    by_question: dict[str, tuple[str, object]] = {}
    for number, entry in enumerate(content.items() if isinstance(content, Mapping) else content):
        if isinstance(content, Mapping):
            question, entry = entry
            where = f"the {name} of question {question}"
        else:
            where = f"{source}{name}s[{number}]"
            question = get_field(entry, "question_id", int | str, where, f"give {name}s as the VQA data set has them")
        if str(question) in by_question:
            raise DataError(f"{source}question {question} has two {name}s; leave out one of them")
        by_question[str(question)] = (where, entry)
    return by_question


def _read_annotation(where: str, entry: object) -> Annotation:
    hint = "give annotations as the VQA data set has them"
    entries = get_field(entry, "answers", list | tuple, where, hint)
    types = (str(get_field(entry, key, object, where, hint)) for key in ("question_type", "answer_type"))
    given = [answer.get("answer") if isinstance(answer, Mapping) else answer for answer in entries]
    answers = tuple(answer for answer in given if isinstance(answer, str))
    if not given or len(answers) != len(given):
        raise DataError(f"the 'answers' of {where} are not a list of strings or of objects with 'answer'; {hint}")
    return Annotation(answers, *types)


def _plain(text: str) -> str:
    return text.replace("\n", " ").replace("\t", " ").strip()


def _percent(values: Sequence[float]) -> float:
    return round(100 * sum(values) / len(values), 2)
