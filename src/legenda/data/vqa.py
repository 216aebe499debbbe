"""Questions about images and people's answers, from the files of VQA v2, Visual Genome and DAQUAR."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from legenda.errors import DataError
from legenda.io import get_field, read_json, read_text, verified, write_json
from legenda.metrics.vqa import Annotation, normalize_answer, read_annotation

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


def read_vqa(questions: str | Path, annotations: str | Path | None = None) -> list[Question]:
    """Read questions in the layout of VQA v2, and their annotations where there are some, in the file's order.

    Visual Genome's pairs, as MCAN's authors hand them out, have the same layout. Both files may be gzipped.
    Raises DataError, naming the file and the key, for what is missing or of the wrong type, for a question given twice,
    and for one without annotation.
    """
    path = Path(questions)
    answered = {} if annotations is None else _read_annotations(Path(annotations))
    by_id: dict[str, Question] = {}
    for number, entry in enumerate(_list(path, "questions", _QUESTIONS)):
        where = f"{path}: questions[{number}]"
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


def read_main_answers(path: str | Path) -> list[str]:
    """Return the normalized `multiple_choice_answer` of each of VQA's annotations."""
    path = Path(path)
    return [
        normalize_answer(
            get_field(entry, "multiple_choice_answer", str, f"{path}: annotations[{number}]", _ANNOTATIONS)
        )
        for number, entry in enumerate(_list(path, "annotations", _ANNOTATIONS))
    ]


def _read_annotations(path: Path) -> dict[str, Annotation]:
    by_id: dict[str, Annotation] = {}
    for number, entry in enumerate(_list(path, "annotations", _ANNOTATIONS)):
        where = f"{path}: annotations[{number}]"
        annotation = read_annotation(where, entry)
        name = str(get_field(entry, "question_id", int | str, where, _ANNOTATIONS))
        if name in by_id:
            raise DataError(f"{path} annotates question {name} twice; leave one of them out")
        by_id[name] = annotation
    return by_id


def _list(path: Path, key: str, hint: str) -> list[Any]:
    return get_field(read_json(path, hint), key, list, str(path), hint)


def read_daquar(path: str | Path) -> list[Question]:
    """Read a CSV of DAQUAR with the columns question, answer and image_id; a question's id is its row from 0 on.

    The one answer stands for all ten people, normalized, so that the official accuracy counts the predictions that are
    equal to it. Answers that list several things are one answer each. The type of a question is its first two words.
    Raises DataError, naming the file and the row, for what is missing.
    """
    path = Path(path)
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


_LITERALS = {"<pad>": "PAD", "<unk>": "UNK", "<cls>": "CLS"}
"""What MCAN's code looks up for its special words."""
_MAX_LINE = 1 << 20
"""Characters of a line."""


def read_word_vectors(path: str | Path, words: Sequence[str]) -> np.ndarray:
    """Return the vectors `(V, E)` float32 of `words`, from a text file in GloVe's layout, perhaps gzipped.

    A line is a word and its E numbers; a first line of two numbers, as word2vec writes it, is passed over. Words that
    the file lacks get zeros; special words get the vectors of PAD, UNK and CLS, as in MCAN. Raises DataError, naming
    the file and the line, where a line has another number of numbers, and where no word of `words` is in the file.
    """
    path = Path(path)
    hint = "give a word and its numbers on every line, as GloVe does"
    wanted = {_LITERALS.get(word, word): place for place, word in enumerate(words)}

    def read() -> np.ndarray | None:
        vectors: np.ndarray | None = None
        for number, word, values in _vector_lines(path):
            if vectors is None:
                vectors = np.zeros((len(words), len(values)), np.float32)
            if len(values) != vectors.shape[1]:
                raise ValueError(f"line {number} has {len(values)} numbers, those before it {vectors.shape[1]}")
            if word in wanted:
                try:
                    vectors[wanted[word]] = [float(value) for value in values]
                except ValueError as error:
                    raise ValueError(f"line {number}: {error}") from error
                if not np.isfinite(vectors[wanted[word]]).all():
                    raise ValueError(f"line {number} holds numbers that are NaN or infinite")
        return vectors

    vectors = verified(read, path, hint)
    if vectors is None or not vectors.any():
        raise DataError(f"{path} holds no vector of any word of the questions; {hint}")
    return vectors


def _vector_lines(path: Path) -> Iterator[tuple[int, str, list[str]]]:
    """Number, word and the texts of the values of each line."""
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8", newline="\n") as file:
        width = 0
        for number, line in enumerate(iter(lambda: file.readline(_MAX_LINE), ""), start=1):
            parts = line.rstrip().split(" ")
            if number == 1 and len(parts) == 2:
                continue
            width = width or len(parts) - 1
            cut = max(1, len(parts) - width)  # a few words of GloVe's largest file hold spaces
            yield number, " ".join(parts[:cut]), parts[cut:]


def write_vqa_results(path: str | Path, predictions: Mapping[str, str]) -> None:
    """Write answers as EvalAI takes them: a list of objects with `answer` and `question_id`, a number if it is one."""
    write_json(
        path,
        [
            {"question_id": int(name) if name.isdecimal() else name, "answer": answer}
            for name, answer in predictions.items()
        ],
    )
