"""Correlation of metrics with human ratings, in files of Flickr8k's layout and in tables."""

import json
from pathlib import Path

import numpy as np
import pytest
from correlation import correlate

from legenda.errors import DataError
from legenda.metrics import evaluate

REFERENCES = {
    "a": ["a dog runs on grass", "the dog is running outside", "a brown dog runs"],
    "b": ["two boys play football", "children play with a ball", "boys kick a ball in a park"],
    "c": ["a woman rides a red bicycle", "a lady on a bike", "a cyclist in the street"],
}
EXPERT = """\
a.jpg\tb.jpg#0\t1\t1\t2
a.jpg\tc.jpg#1\t1\t2\t2
a.jpg\ta.jpg#1\t4\t4\t4
b.jpg\ta.jpg#2\t2\t1\t1
b.jpg\tc.jpg#0\t1\t1\t1
c.jpg\ta.jpg#0\t3\t2\t1
c.jpg\tb.jpg#2\t1\t3\t4
"""


@pytest.fixture(autouse=True)
def _files(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [f"{image}.jpg#{n}\t{caption} ." for image, group in REFERENCES.items() for n, caption in enumerate(group)]
    Path("Flickr8k.token.txt").write_text("\n".join(lines) + "\n")
    Path("ExpertAnnotations.txt").write_text(EXPERT)
    Path("references.json").write_text(json.dumps(REFERENCES))


def correlations(name: str, references: str = "Flickr8k.token.txt") -> dict:
    return correlate(Path(name), Path(references), metrics="fast").results


def tau(values, ratings) -> tuple[float, float]:
    """Return Kendall's tau-b and tau-c by their definitions, from all pairs of observations."""
    x, y = (np.sign(np.subtract.outer(v, v))[np.triu_indices(len(v), 1)] for v in map(np.array, (values, ratings)))
    classes, n = min(len(set(values)), len(set(ratings))), len(values)
    return (
        (x * y).sum() / np.sqrt((x != 0).sum() * (y != 0).sum()),
        2 * (x * y).sum() / (n**2 * (classes - 1) / classes),
    )


def test_each_of_the_experts_ratings_is_an_observation_and_own_references_are_left_out():
    found = correlations("ExpertAnnotations.txt")
    assert (found["captions"], found["ratings"], found["left_out"]) == (6, 18, 1)
    rows = [line.split("\t") for line in EXPERT.splitlines() if "a.jpg#1" not in line]
    captions = {str(n): REFERENCES[row[1][0]][int(row[1][-1])] for n, row in enumerate(rows)}
    scores = evaluate(captions, {str(n): REFERENCES[row[0][0]] for n, row in enumerate(rows)}, metrics="fast")
    ratings = [int(cell) for row in rows for cell in row[2:]]
    for name in ("BLEU-1", "ROUGE-L", "CIDEr-D"):
        values = [scores.per_image[str(n)][name] for n in range(len(rows)) for _ in range(3)]
        b, c = tau(values, ratings)
        assert found["metrics"][name]["tau_b"] == pytest.approx(b)
        assert found["metrics"][name]["tau_c"] == pytest.approx(c)
        ranks = [np.array([sorted(v).index(x) + v.count(x) / 2 for x in v]) for v in (values, ratings)]
        assert found["metrics"][name]["rho"] == pytest.approx(np.corrcoef(*ranks)[0, 1])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.txt", "a.jpg\tb.jpg#0\t1\t2", "line 1 does not have 5 columns"),
        ("x.txt", "a.jpg\tb.jpg#9\t1\t2\t3", "names the caption b.jpg#9, which is not known"),
        ("x.txt", "a.jpg\tb.jpg#0\t0.5\t3\t0", "line 1 has neither three ratings"),
        ("x.csv", "image_id,caption\na,b", "row 1 lacks image_id, caption or rating"),
        ("x.csv", "image_id,caption,rating\na,b,1", "fewer than two captions"),
        ("x.json", '[{"image_id": "a", "caption": "b", "rating": NaN}]', "x.json holds a number that is NaN"),
    ],
)
def test_bad_files_are_refused_in_a_sentence(name, content, message):
    Path(name).write_text(content + "\n")
    with pytest.raises(DataError, match=message):
        correlations(name)
