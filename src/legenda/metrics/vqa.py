"""The accuracy of visual question answering, as the official evaluation counts it (GT-Vision-Lab/VQA, vqaEval.py).

A prediction is compared with the answers of ten people: it is right by a third for every person who agrees, at most
wholly. Numbers agree with the official program to its last digit, including what looks like slips in it.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from legenda.errors import UserError
from legenda.metrics.contractions import CONTRACTIONS

_MARKS = ';/[]"{}()=+\\_-><@`,?!'
_GROUPED = re.compile(r"\d,\d")
_FULL_STOP = re.compile(r"\.(?!\d)")
_MOST_STOPS = 32
"""The official program passes re.UNICODE, which is 32, where the number of replacements is meant."""
_NUMBERS = {"none": "0"} | {
    word: str(number)
    for number, word in enumerate(
        ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
    )
}
_ARTICLES = ("a", "an", "the")
_SHARES = (0.0, 0.3, 0.6, 0.9, 1.0)


@lru_cache(maxsize=1 << 16)  # people's answers repeat themselves
def normalize_answer(text: str) -> str:
    """An answer as the official evaluation compares it: lower case, without articles and most punctuation, digits for
    number words up to ten, usual apostrophes restored.

    A mark vanishes where the text has it beside a space, or has a comma between digits anywhere, and becomes a space
    elsewhere. Full stops vanish but before digits, the first 32 of them.
    """
    text = _plain(text)
    grouped = _GROUPED.search(text) is not None
    found = text
    for mark in _MARKS:
        apart = f"{mark} " in text or f" {mark}" in text
        found = found.replace(mark, "" if apart or grouped else " ")
    found = _FULL_STOP.sub("", found, count=_MOST_STOPS)
    words = (_NUMBERS.get(word, word) for word in found.lower().split())
    return " ".join(CONTRACTIONS.get(word, word) for word in words if word not in _ARTICLES)


def vqa_accuracy(prediction: str, answers: Sequence[str]) -> float:
    """How right a prediction is, 0 to 1, given the answers of (ten) people.

    For each person a third of a point for every *other* person who gave this answer, at most one; then the mean over
    the people. Both sides are normalised unless all people say the same, when they are compared as they are written but
    for white space around them. UserError where nobody has answered.
    """
    return round(_accuracy(prediction, answers), 12)


def _accuracy(prediction: str, answers: Sequence[str]) -> float:
    """The same, summed as the official program sums it, whose last digit may decide how a mean is rounded."""
    if not answers:
        raise UserError("A prediction is compared with people's answers, and there are none; give them")
    prediction, told = _plain(prediction), [_plain(answer) for answer in answers]
    if len(set(told)) > 1:
        prediction, told = normalize_answer(prediction), [normalize_answer(answer) for answer in told]
    same = [answer == prediction for answer in told]
    agreeing = sum(same)
    return sum(min(1.0, (agreeing - own) / 3) for own in same) / len(same)


def soft_targets(answers: Iterable[str]) -> dict[str, float]:
    """What a model learns for one question: each normalised answer with 0.3, 0.6, 0.9 or 1 for 1, 2, 3 or more people.

    The share is the accuracy that an answer of so many among ten people has.
    """
    counts = Counter(normalize_answer(answer) for answer in answers)
    return {answer: _SHARES[min(count, len(_SHARES) - 1)] for answer, count in counts.items()}


@dataclass(frozen=True)
class Annotation:
    """What people answered to one question, and the types under which its accuracy is counted."""

    answers: tuple[str, ...]
    question_type: str
    answer_type: str


@dataclass(frozen=True)
class VqaScores:
    """Percentages with two decimals, as the official evaluation rounds them.

    overall: the mean over all questions; answer_types and question_types: the means within each type, in the order in
    which the types are met; questions: each question's own accuracy.
    """

    overall: float
    answer_types: dict[str, float]
    question_types: dict[str, float]
    questions: dict[str, float]


def evaluate_vqa(predictions: Any, annotations: Any) -> VqaScores:
    """The scores of answers to questions.

    predictions: an answer by the question's id, which may be a number or text, or the list of objects with
    `question_id` and `answer` that EvalAI takes.
    annotations: an Annotation, or an object with `answers`, `question_type` and `answer_type`, by the question's id; or
    the official JSON, whole or its list of `annotations`.
    Raises UserError, naming the question, where predictions and annotations are not of the same questions.
    """
    given, truth = _predictions(predictions), _annotations(annotations)
    if not truth:
        raise UserError("There are no annotated questions to score answers with; give some")
    for question in truth:
        if question not in given:
            raise UserError(f"question {question} has no prediction; answer every annotated question")
    for question in given:
        if question not in truth:
            raise UserError(f"question {question} is answered but not annotated; leave it out")
    by_answer: dict[str, list[float]] = defaultdict(list)
    by_question: dict[str, list[float]] = defaultdict(list)
    right = {question: _accuracy(given[question], annotation.answers) for question, annotation in truth.items()}
    for question, annotation in truth.items():
        by_answer[annotation.answer_type].append(right[question])
        by_question[annotation.question_type].append(right[question])
    return VqaScores(
        _percent(list(right.values())),
        {name: _percent(values) for name, values in by_answer.items()},
        {name: _percent(values) for name, values in by_question.items()},
        {question: _percent([value]) for question, value in right.items()},
    )


def _predictions(given: Any) -> dict[str, str]:
    pairs = list(given.items()) if isinstance(given, Mapping) else []
    for number, entry in enumerate(() if isinstance(given, Mapping) else given):
        if not isinstance(entry, Mapping) or not {"question_id", "answer"} <= entry.keys():
            raise UserError(f"predictions[{number}] has no 'question_id' and 'answer'; give both")
        pairs.append((entry["question_id"], entry["answer"]))
    found: dict[str, str] = {}
    for question, answer in pairs:
        if not isinstance(answer, str):
            raise UserError(f"the prediction for question {question} is no text; give the words of an answer")
        if str(question) in found:
            raise UserError(f"question {question} is answered twice; leave one answer")
        found[str(question)] = answer
    return found


def _annotations(given: Any) -> dict[str, Annotation]:
    if isinstance(given, Mapping) and "annotations" in given:
        given = given["annotations"]
    if isinstance(given, Mapping):
        entries = [(question, f"the annotation of question {question}", entry) for question, entry in given.items()]
    else:
        entries = [(None, f"annotations[{number}]", entry) for number, entry in enumerate(given)]
    found: dict[str, Annotation] = {}
    for question, where, entry in entries:
        if question is None:
            question = entry.get("question_id") if isinstance(entry, Mapping) else None
        if question is None:
            raise UserError(f"{where} has no 'question_id'; give annotations as the VQA data set has them")
        if str(question) in found:
            raise UserError(f"question {question} is annotated twice; leave one of them out")
        found[str(question)] = entry if isinstance(entry, Annotation) else read_annotation(where, entry)
    return found


def read_annotation(where: str, entry: Any) -> Annotation:
    """The annotation in one entry of official JSON; UserError names `where` it stands and the key at fault."""
    hint = "give annotations as the VQA data set has them"
    if not isinstance(entry, Mapping):
        raise UserError(f"{where} is no object; {hint}")
    for key in ("answers", "question_type", "answer_type"):
        if key not in entry:
            raise UserError(f"{where} has no '{key}'; {hint}")
    told = entry["answers"] if isinstance(entry["answers"], list | tuple) else ()
    found = [answer.get("answer") if isinstance(answer, Mapping) else answer for answer in told]
    answers = tuple(answer for answer in found if isinstance(answer, str))
    if not found or len(answers) != len(found):
        raise UserError(f"the 'answers' of {where} are no list of texts or of objects with 'answer'; {hint}")
    return Annotation(answers, str(entry["question_type"]), str(entry["answer_type"]))


def _plain(text: str) -> str:
    return text.replace("\n", " ").replace("\t", " ").strip()


def _percent(values: Sequence[float]) -> float:
    return round(100 * sum(values) / len(values), 2)
