"""The claims, their runs, the rule of the verdict, and the page that is made from numbers alone."""

import json
from xml.etree import ElementTree

import pytest
import torch
from claim import arm_recipe, count_steps, get_claim, list_claims
from page import Interval, decide, paired_interval

from legenda.io import write_json
from legenda.models.registry import build_model

SIZES = {"vocab_size": 20, "feature_dim": 192}
TASK_SIZES = {
    "captioning": SIZES,
    "grounding": SIZES,
    "vqa": {**SIZES, "answers": 30},
    "translation": {"vocab_size": 50},
}
T4 = 2.7764451052
"""The 97.5 % point of Student's t distribution with four degrees of freedom, from a table."""

TINY = """
title = "T"
question = "Q?"
source = "S"
dataset = "D"
[data]
train = 12
validation = 3
test = 18
[model]
dim = 8
num_heads = 2
num_layers = 1
ff_dim = 8
[training]
epochs = 1
batch_size = 6
eval_beam_size = 1
[fine_tuning]
epochs = 1
[[arms]]
key = "xe"
label = "XE"
recipe = "scenes.transformer"
[[arms]]
key = "sc"
label = "SC"
recipe = "scenes.transformer"
model = { distance = "manhattan" }
fine_tuning = { objective = "self_critical" }
[[measures]]
key = "truth"
label = "truth"
[[measures]]
key = "diversity"
label = "diversity"
metric = "sample_diversity"
[[comparisons]]
arm = "sc"
against = "xe"
measure = "truth"
predicted = "higher"
"""


def results(truth: dict[str, list[float | None]]) -> dict:
    """Return the numbers of the claim `absent`: the truth of each seed by arm."""
    arms = {
        arm: {
            "steps": 320,
            "parameters": 1000,
            "seeds": {str(n): {"truth": v, "absent": 0.5, "present": 0.5} for n, v in enumerate(values)},
        }
        for arm, values in truth.items()
    }
    about = {"claim": "absent", "date": "2026-01-01", "machine": "a processor", "beam_size": 3, "core_hours": 1.5}
    return {**about, "arms": arms}


@pytest.mark.parametrize("name", list_claims())
def test_every_claim_compares_models_of_equal_size_and_budget(name):
    claim = get_claim(name)
    recipes = {key: arm_recipe(arm) for key, arm in claim.arms.items()}
    with torch.device("meta"):
        models = {key: build_model(r.model, {**r.model_overrides, **TASK_SIZES[r.task]}) for key, r in recipes.items()}
    for comparison in claim.comparisons:
        if isinstance(comparison.against, str):
            first, second = (models[key].parameter_count for key in (comparison.arm, comparison.against))
            assert max(first, second) <= 1.10 * min(first, second), comparison
            if not comparison.against.endswith("_before"):  # the same model before a second stage
                assert count_steps(recipes[comparison.arm]) == count_steps(recipes[comparison.against])
            assert recipes[comparison.arm].data == recipes[comparison.against].data


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_a_claim_is_trained_resumed_and_reported(tmp_path, run_script):
    claim = tmp_path / "tiny.toml"
    claim.write_text(TINY, encoding="utf-8")
    out = tmp_path / "out"
    numbers = []
    for seeds in (1, 2):
        code, printed, _ = run_script("claims/run.py", claim, "--out", out, "--seeds", seeds)
        assert code == 0
        assert str(out / "tiny.md") in printed
        numbers.append(json.loads((out / "tiny.json").read_text()))
    first, second = numbers
    assert second["core_hours"] >= first["core_hours"] > 0
    for arm in ("xe", "sc"):
        assert second["arms"][arm]["seeds"]["0"] == first["arms"][arm]["seeds"]["0"]  # not trained again
        assert list(second["arms"][arm]["seeds"]) == ["0", "1"]
        assert second["arms"][arm]["steps"] == 4
        assert 0 <= second["arms"][arm]["seeds"]["1"]["diversity"] <= 1


def test_the_page_of_numbers_states_what_follows_from_them(tmp_path, run_script):
    path = tmp_path / "absent.json"
    low, high = [0.1, 0.2, 0.3, 0.2, 0.1], [0.5, 0.6, 0.8, 0.6, 0.5]
    write_json(path, results({"base": low, "decoder_aoa": high, "encoder": high, "encoder_aoa": low}))
    assert run_script("claims/run.py", "--page", path)[0] == 0
    page = (tmp_path / "absent.md").read_text(encoding="utf-8")
    # differences 0.4, 0.4, 0.5, 0.4, 0.4: mean 0.42, half of the interval t * sqrt(0.002 / 5)
    assert "| 0.420 | 0.364 to 0.476 | confirmed |" in page
    assert "| -0.420 | -0.476 to -0.364 | refuted |" in page
    figure = ElementTree.parse(tmp_path / "absent.svg").getroot()
    assert len(figure.findall("{http://www.w3.org/2000/svg}circle")) == 2 * 4 * 5


def test_a_killed_claim_leaves_no_partial_files_when_it_is_called_again(tmp_path, run_script, monkeypatch):
    numbers = results({key: [0.1, 0.2, 0.3, 0.2, 0.1] for key in ("base", "decoder_aoa", "encoder", "encoder_aoa")})
    monkeypatch.setattr("claim.claim_runs", lambda *_: [])
    monkeypatch.setattr("measures.collect", lambda *_: numbers)
    for name in ("absent.json", "absent.md", "absent.svg", "core_hours.json"):
        (tmp_path / f".{name}.0123abcd.partial").write_text("{")
    assert run_script("claims/run.py", "absent", "--out", tmp_path)[0] == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "absent.json",
        "absent.md",
        "absent.svg",
        "core_hours.json",
    ]


def test_the_interval_is_that_of_a_table_of_students_t():
    interval = paired_interval([0.1, 0.2, 0.3, 0.4, 0.5])  # mean 0.3, standard deviation sqrt(0.025)
    half = T4 * (0.025 / 5) ** 0.5
    assert (interval.mean, interval.low, interval.high) == pytest.approx((0.3, 0.3 - half, 0.3 + half))
    assert paired_interval([0.5] * 5) == Interval(0.5, 0.5, 0.5)
    assert paired_interval([0.5]) == Interval(0.5, None, None)


@pytest.mark.parametrize(
    ("low", "high", "seeds", "higher", "lower"),
    [
        (0.1, 0.3, 5, "confirmed", "refuted"),
        (-0.3, -0.1, 5, "refuted", "confirmed"),
        (-0.1, 0.3, 5, "not confirmed", "not confirmed"),
        (0.0, 0.3, 5, "not confirmed", "not confirmed"),
        (0.1, 0.3, 4, "no verdict", "no verdict"),
    ],
)
def test_the_verdict_follows_from_the_interval(low, high, seeds, higher, lower):
    interval = Interval(0.0, low, high)
    assert decide(interval, seeds, "higher") == higher
    assert decide(interval, seeds, "lower") == lower
