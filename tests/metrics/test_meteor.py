"""METEOR against its reference program, by hand, and where that program fails."""

import json
from importlib.util import find_spec

import pytest

from legenda.errors import LegendaError
from legenda.metrics.meteor import count_matches, meteor_scores


@pytest.mark.skipif(find_spec("pycocoevalcap") is None, reason="needs the extra `meteor`")
def test_scores_of_pycocoevalcap_and_by_hand(shared):
    fixture = json.loads((shared / "fixtures/metrics_fakecap.json").read_text(encoding="utf-8"))
    images = list(fixture["tok_candidates"])
    # The signs in these break the program's protocol and count as spaces.
    odd = ["the cats sit", "a dog\nruns\rhome", "a ||| b", "caf\ud800e", "", "a cat\u2028"]
    odd_references = [["a cat sat"], ["a dog runs home"], ["a b", "a |||| b"], ["x\ny"], ["a kite"], [""]]
    counts = count_matches(
        [*(fixture["tok_candidates"][image] for image in images), *odd],
        [*(fixture["tok_refs"][image] for image in images), *odd_references],
    )
    scores = meteor_scores(counts)
    expected = list(fixture["per_image"]["METEOR"].values())
    assert scores[: len(images)] == pytest.approx(expected, abs=1e-12)
    corpus = meteor_scores(counts[: len(images)].sum(0))
    assert float(corpus) == pytest.approx(fixture["corpus"]["METEOR"], abs=1e-12)
    # "cats" has the stem of "cat" (0.6), "sit" is a synonym of "sat" (0.8); content words count 0.75, others 0.25.
    precision = recall = 0.75 * (0.6 + 0.8) / (0.75 * 2 + 0.25 * 1)
    mean = precision * recall / (0.85 * precision + 0.15 * recall)
    assert scores[len(images) :] == pytest.approx([mean * (1 - 0.6 * (1 / 2) ** 0.2), 1, 1, 0, 0, 0])
    # The program's own corpus score: a caption that equals its reference adds no fragment.
    two = counts[len(images) :][:2].sum(0)
    assert float(meteor_scores(two)) == pytest.approx(0.48505840870977324, abs=1e-12)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("time.sleep(60)", "more than 0.5 seconds"),
        ("print('Exception in thread main: no memory', file=sys.stderr); sys.exit(3)", "no memory"),
        ("for line in sys.stdin: print('Error: specify SCORE or EVAL or SING')", "other than counts"),
    ],
)
@pytest.mark.usefixtures("programs")
def test_failures_are_named(fake_java, monkeypatch, code, reason):
    monkeypatch.setattr("legenda.metrics.spice._LIMIT_S", 0.5 if "sleep" in code else 30)
    fake_java(code)
    with pytest.raises(LegendaError, match=reason):
        count_matches(["a"], [["a"]])
