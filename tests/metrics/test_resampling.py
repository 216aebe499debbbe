"""Resampling: sums that give the scores back, exact small cases, and laws."""

from itertools import product
from statistics import fmean

import numpy as np
import pytest

from legenda.errors import LegendaError
from legenda.evaluation.comparison import compare_pairs
from legenda.metrics import Scores, compare, evaluate, holm, intervals
from legenda.metrics.bleu import bleu_scores
from legenda.metrics.resampling import students_interval, students_quantile

WORDS = ("a", "the", "dog", "cat", "runs", "sits", "on", "in", "red", "big")

BLEU = [f"BLEU-{n}" for n in (1, 2, 3, 4)]


def captions(seed: int, images: int, length: int = 8) -> dict[int, str]:
    generator = np.random.default_rng(seed)
    return {image: " ".join(generator.choice(WORDS, length)) for image in range(images)}


REFERENCES = {image: [caption, "a dog runs"] for image, caption in captions(0, 60).items()}
BETTER = {image: " ".join(group[0].split()[:6]) for image, group in REFERENCES.items()}
WORSE = captions(1, 60)


def scored(predictions: dict[int, str]) -> Scores:
    return evaluate(predictions, REFERENCES, metrics="fast")


def of_means(values: list[float | None]) -> Scores:
    known = [value for value in values if value is not None]
    return Scores({"SPICE": fmean(known)}, {n: {"SPICE": value} for n, value in enumerate(values)}, None, None)


@pytest.mark.parametrize("predictions", [BETTER, WORSE, dict.fromkeys(WORSE, "")])
def test_sums_over_all_images_give_the_scores(predictions):
    scores, counts = scored(predictions), np.array(scored(predictions).counts["BLEU-4"])
    assert bleu_scores(counts.sum(0)) == pytest.approx([scores[name] for name in BLEU], rel=1e-12)
    alone = np.array([[values[name] for name in BLEU] for values in scores.per_image.values()])
    assert bleu_scores(counts) == pytest.approx(alone, rel=1e-9)


def test_the_interval_of_a_mean_is_that_of_its_standard_error():
    values = np.random.default_rng(5).normal(0.5, 0.1, 400)
    found = intervals(of_means(values.tolist()), resamples=4000)["SPICE"]
    error = values.std() / np.sqrt(400)
    assert found.low == pytest.approx(values.mean() - 1.96 * error, abs=0.15 * error)
    assert found.high == pytest.approx(values.mean() + 1.96 * error, abs=0.15 * error)


def test_intervals_hold_their_scores_and_depend_on_the_seed_alone():
    scores = scored(WORSE)
    found = intervals(scores, resamples=300)
    assert list(found) == list(scores.corpus)
    assert all(found[name].low < scores[name] < found[name].high for name in ("BLEU-1", "ROUGE-L", "CIDEr-D"))
    assert intervals(scores, resamples=300) == found
    assert intervals(scores, resamples=300, seed=1) != found
    narrow = intervals(scores, resamples=300, confidence=0.5)
    for name in ("BLEU-1", "CIDEr-D"):
        assert found[name].low < narrow[name].low < narrow[name].high < found[name].high


def test_the_draws_do_not_depend_on_how_many_are_held_at_once(monkeypatch):
    scores = scored(WORSE)
    found = intervals(scores, resamples=50), compare(scores, scored(BETTER), resamples=50)
    monkeypatch.setattr("legenda.metrics.resampling._AT_ONCE", 60 * 7)
    again = intervals(scores, resamples=50), compare(scores, scored(BETTER), resamples=50)
    for first, second in zip(found, again, strict=True):
        for name in first:
            assert vars(first[name]) == pytest.approx(vars(second[name]))


def test_a_clear_difference_is_found_and_changes_its_sign_with_the_order():
    for found in compare(scored(WORSE), scored(dict(reversed(WORSE.items()))), resamples=100).values():
        assert (found.difference, found.low, found.high, found.p) == (0, 0, 0, 1)
    forth = compare(scored(BETTER), scored(WORSE), resamples=200)
    back = compare(scored(WORSE), scored(BETTER), resamples=200)
    for name, found in forth.items():
        assert found.difference > 0
        assert found.low > 0
        assert found.p == 1 / 201
        assert back[name].difference == pytest.approx(-found.difference)
        assert (back[name].low, back[name].high) == pytest.approx((-found.high, -found.low))
        assert back[name].p == found.p


def test_p_of_a_few_images_is_that_of_all_ways_to_swap():
    first, second = [0.9, 0.5, 0.7, 0.6, 0.8, 0.3], [0.4, 0.6, 0.5, 0.5, 0.6, 0.4]
    gaps = np.subtract(first, second)
    ways = [abs((gaps * signs).sum()) for signs in product((1, -1), repeat=6)]
    exact = np.mean([way >= abs(gaps.sum()) - 1e-12 for way in ways])
    found = compare(of_means(first), of_means(second), resamples=20_000)["SPICE"]
    assert found.difference == pytest.approx(gaps.mean())
    assert found.p == pytest.approx(exact, abs=0.01)


def test_what_cannot_be_compared_is_refused():
    scores = scored(WORSE)
    fewer = evaluate({1: "a"}, {1: ["a"]}, metrics="fast")
    other = evaluate(WORSE, REFERENCES, metrics="fast", df={1: ["a"], 2: ["b"]})
    for second, options in ((fewer, {}), (other, {}), (scores, {"resamples": 0}), (scores, {"confidence": 95})):
        with pytest.raises(LegendaError):
            compare(scores, second, **options)


@pytest.mark.parametrize(
    ("p", "corrected"),
    [
        ([0.01, 0.04, 0.03, 0.005], [0.03, 0.06, 0.06, 0.02]),  # 3 x .01, no less than 2 x .03, 2 x .03, 4 x .005
        ([0.6, 0.7], [1.0, 1.0]),
        ([0.2], [0.2]),
        ([], []),
    ],
)
def test_holm_multiplies_by_the_comparisons_that_are_left_and_keeps_the_order(
    p: list[float], corrected: list[float]
) -> None:
    assert holm(p) == pytest.approx(corrected)


def test_intervals_and_p_of_means_are_those_of_scipy():
    stats = pytest.importorskip("scipy.stats", reason="needs SciPy to compare with")
    generator = np.random.default_rng(3)
    for n in (2, 5, 9, 30):
        values = generator.normal(0.1, 0.2, n)
        second = dict.fromkeys(range(n), 0.0)
        found = compare(of_means(values.tolist()), of_means([second[i] for i in range(n)]), resamples=700)["SPICE"]
        interval = stats.bootstrap(
            (values,), np.mean, n_resamples=700, method="percentile", rng=np.random.default_rng([0, 0])
        ).confidence_interval
        test = stats.permutation_test(
            (values,),
            lambda x, axis: np.abs(x.mean(axis=axis)),
            permutation_type="samples",
            alternative="greater",
            n_resamples=700,
            rng=np.random.default_rng([0, 1]),
        )
        assert (found.low, found.high) == pytest.approx((interval.low, interval.high), abs=1e-12)
        assert found.p == pytest.approx(test.pvalue, abs=1e-12)


def test_students_interval_and_p_of_pairs_are_those_of_scipy():
    stats = pytest.importorskip("scipy.stats", reason="needs SciPy to compare with")
    generator = np.random.default_rng(4)
    for n in (2, 3, 4, 7, 13, 20):
        first, second = generator.normal(0.3, 0.2, (2, n))
        found = compare_pairs({"CIDEr-D": first}, {"CIDEr-D": second})["CIDEr-D"]
        interval = stats.ttest_rel(first, second).confidence_interval()
        test = stats.permutation_test(
            (first - second,), np.mean, permutation_type="samples", n_resamples=2**13, rng=np.random.default_rng(0)
        )
        assert (found.low, found.high) == pytest.approx((interval.low, interval.high), abs=1e-9)
        assert found.p == pytest.approx(test.pvalue, abs=1e-12)
    for degrees in (1, 2, 3, 10, 99):
        expected = stats.t.ppf(0.975, degrees)
        assert students_quantile(0.95, degrees) == pytest.approx(expected, rel=1e-10)
    assert vars(students_interval(np.full(3, 0.25))) == {"low": 0.25, "high": 0.25}
