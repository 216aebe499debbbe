"""Files of judgments: what judges see, what is kept, resuming, and the numbers that follow."""

import json
from pathlib import Path

import numpy as np
import pytest
from judgments import JudgmentFile, Pair, fleiss_kappa, read_judgments

from legenda.errors import ConfigError

PAIRS = [Pair(str(number), f"first {number}", f"second {number}") for number in range(6)]


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "judgments.jsonl"


def open_file(path: Path, pairs=PAIRS) -> JudgmentFile:
    return JudgmentFile(path, "a.json", "b.json", pairs)


def answer_all(file: JudgmentFile, judge: str, prefer) -> None:
    """Answer every pair; prefer: the choice for what is shown on the left."""
    question = file.next_question(judge)
    while question.pair is not None:
        question = file.answer(judge, question.pair, prefer(question))


def first_is_better(question) -> str:
    return "left" if question.left.startswith("first") else "right"


def test_choices_of_sides_become_verdicts_on_models(path):
    file = open_file(path)
    answer_all(file, "Ann", first_is_better)
    answer_all(file, "Bob", lambda _: "left")
    found = read_judgments(path)
    assert set(found.verdicts["Ann"].values()) == {"first"}
    lines = [json.loads(line) for line in path.read_text().splitlines()[1:]]
    bob = [line for line in lines if line["judge"] == "Bob"]
    assert all(line["verdict"] == line["left"] for line in bob)
    assert len(bob) == 6


def test_order_and_sides_are_random_for_each_pair_and_judge(path):
    pairs = [Pair(str(number), "first", "second") for number in range(200)]
    file = open_file(path, pairs)
    layouts = [file.judgments.layout(judge) for judge in ("Ann", "Bob")]
    assert [sorted(dict(layout)) for layout in layouts] == [list(range(200))] * 2
    assert layouts[0] != layouts[1]
    sides = np.array([[dict(layout)[number] for number in range(200)] for layout in layouts])
    assert (abs(sides.mean(1) - 0.5) < 0.15).all()
    assert 0.3 < (sides[0] != sides[1]).mean() < 0.7
    other = open_file(path.with_name("other.jsonl"), pairs)
    assert other.judgments.layout("Ann") != layouts[0]  # the key is drawn anew, so nobody can derive the sides


def test_a_judge_continues_where_the_last_process_stopped(path):
    file = open_file(path)
    for _ in range(2):
        file.answer("Ann", file.next_question("Ann").pair, "equal")
    resumed = open_file(path)
    assert resumed.next_question("Ann") == file.next_question("Ann")
    assert resumed.next_question("Ann").done == 2
    assert resumed.next_question("Bob").done == 0
    with pytest.raises(ConfigError, match="judgments of other pairs"):
        open_file(path, PAIRS[:3])


def test_a_cut_last_line_does_not_count_and_is_overwritten(path):
    file = open_file(path)
    answer_all(file, "Ann", first_is_better)
    complete = path.read_bytes()
    lines = complete.splitlines(keepends=True)
    for cut in (len(complete) - 1, len(complete) - 20):
        path.write_bytes(complete[:cut])
        assert len(read_judgments(path).verdicts["Ann"]) == 5
        resumed = open_file(path)
        resumed.answer("Ann", resumed.next_question("Ann").pair, "equal")
        assert path.read_bytes().startswith(b"".join(lines[:-1]))
        assert len(read_judgments(path).verdicts["Ann"]) == 6


# Ten psychological subjects, 14 raters, 5 categories: a worked example with kappa 0.210.
_TEN_SUBJECTS = """
0 0 0 0 14 | 0 2 6 4 2 | 0 0 3 5 6 | 0 3 9 2 0 | 2 2 8 1 1 | 7 7 0 0 0 | 3 2 6 3 0 | 2 5 3 2 2 | 6 5 2 1 0 | 0 2 2 3 7
"""
# Fleiss, 1971, Table 1: 30 patients, 6 psychiatrists, 5 diagnoses; the paper has kappa 0.430.
_DIAGNOSES = """
00060 03003 01401 00006 03030 20400 00402 20310 20040 00006 10050 11040 03300 10050 02031 00501 30012 51000 02040 10203
00006 01050 02013 20040 10041 05010 40002 02040 10500 00006
"""


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ([[int(cell) for cell in row.split()] for row in _TEN_SUBJECTS.split("|")], 0.210),
        ([[int(cell) for cell in row] for row in _DIAGNOSES.split()], 0.430),
        ([[2, 0], [1, 1], [0, 2]], 1 / 3),  # observed (1 + 0 + 1) / 3, expected 1/2
        ([[1, 1], [1, 1]], -1.0),
    ],
)
def test_kappa_of_worked_examples(table, expected):
    assert fleiss_kappa(table) == pytest.approx(expected, abs=5e-4)
