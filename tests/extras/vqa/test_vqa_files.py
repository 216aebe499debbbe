"""Questions, answers and word vectors are read from the field's files, and faults in them are named."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from legenda.errors import LegendaError
from legenda.extras.vqa.co_attention import read_word_vectors
from legenda.extras.vqa.data import read_main_answers, read_vqa
from legenda.metrics.vqa import Annotation

QUESTION = {"image_id": 9, "question": "Is it red?", "question_id": 90}
ANNOTATION = {
    "question_id": 90,
    "image_id": 9,
    "question_type": "is it",
    "answer_type": "yes/no",
    "multiple_choice_answer": "The Yes.",
    "answers": [{"answer": "yes", "answer_confidence": "maybe", "answer_id": number} for number in range(1, 11)],
}


def written(path: Path, content: object) -> Path:
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_questions_with_and_without_annotations(tmp_path):
    questions = written(tmp_path / "q.json", {"questions": [QUESTION, {**QUESTION, "question_id": "b"}]})
    bare = read_vqa(questions)
    assert [(q.id, q.image, q.text, q.annotation) for q in bare] == [
        ("90", "9", "Is it red?", None),
        ("b", "9", "Is it red?", None),
    ]
    annotations = tmp_path / "a.json.gz"
    both = {"annotations": [{**ANNOTATION, "question_id": "b", "answer_type": "other"}, ANNOTATION]}
    annotations.write_bytes(gzip.compress(json.dumps(both).encode()))
    found = read_vqa(questions, annotations)
    assert found[0].annotation == Annotation(("yes",) * 10, "is it", "yes/no")
    assert found[1].annotation == Annotation(("yes",) * 10, "is it", "other")
    assert read_main_answers(annotations) == ["yes", "yes"]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ({"questions": [{**QUESTION, "question": None}]}, r"q.json: questions\[0\]\.question must be"),
        ({"questions": [QUESTION, QUESTION]}, "q.json has question 90 twice"),
        ({"questions": []}, "q.json holds no questions"),
        ({"annotations": []}, "q.json has no 'questions'"),
    ],
)
def test_faults_in_questions_are_named(tmp_path, content, problem):
    with pytest.raises(LegendaError, match=problem):
        read_vqa(written(tmp_path / "q.json", content))


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        ([], "a.json has no annotation of question 90"),
        ([ANNOTATION, ANNOTATION], "a.json: annotations have question 90 twice"),
        ([{**ANNOTATION, "answers": "yes"}], r"a.json: annotations\[0\].answers must"),
    ],
)
def test_faults_in_annotations_are_named(tmp_path, entries, problem):
    questions = written(tmp_path / "q.json", {"questions": [QUESTION]})
    with pytest.raises(LegendaError, match=problem):
        read_vqa(questions, written(tmp_path / "a.json", {"annotations": entries}))


WORDS = ("<pad>", "<unk>", "red", "blue")


@pytest.mark.parametrize("heading", ["", "3 2\n"])
def test_word_vectors(tmp_path, heading):
    text = f"{heading}red 1 2\nUNK 3 4\n. . . 9 9\ngreen 5 6\n"
    expected = np.array([[0, 0], [3, 4], [1, 2], [0, 0]], np.float32)
    found = read_word_vectors(written(tmp_path / "glove.txt", text), WORDS)
    assert found.dtype == np.float32
    assert np.array_equal(found, expected)
    (tmp_path / "glove.txt.gz").write_bytes(gzip.compress(text.encode()))
    assert np.array_equal(read_word_vectors(tmp_path / "glove.txt.gz", WORDS), expected)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("red 1 2\nblue 1\n", "line 2 has 1 numbers, those before it 2"),
        ("red 1 2\nblue 1 nan\n", "line 2 holds numbers that are NaN or infinite"),
        ("green 1 2\n", "holds no vector of any word"),
    ],
)
def test_faults_in_word_vectors_are_named(tmp_path, text, problem):
    with pytest.raises(LegendaError, match=rf"glove.txt .*{problem}"):
        read_word_vectors(written(tmp_path / "glove.txt", text), WORDS)
