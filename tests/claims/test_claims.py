"""The claims of the package, their runs, and the page that is made from numbers alone."""

import json
import re
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

from legenda import ConfigError, DataError
from legenda.attention.distance import DistanceRescale
from legenda.claims import claim_runs, get_claim, list_claims, runs, write_page
from legenda.claims.gradient import noise_of
from legenda.claims.probes import PROBES
from legenda.claims.runs import arm_recipe, count_steps
from legenda.cli.main import main
from legenda.models import create_model
from legenda.models.registry import build_model

SIZES = {"vocab_size": 20, "feature_dim": 192}
TASK_SIZES = {
    "captioning": SIZES,
    "grounding": SIZES,
    "vqa": {**SIZES, "answers": 30},
    "translation": {"vocab_size": 50},
}
CLAIM = "absent"
UNDECIDED = "the verdict on `in_q` − `none` (steps to truth 0.9): no verdict."
EARLY = {"early_steps": 100, "truth": 0.5}


def results(truth: dict[str, list[float]], absent: float = 0.5) -> dict:
    """Return the numbers of the claim `absent`: the truth of each seed by arm."""
    arms = {
        arm: {
            "steps": 320,
            "parameters": 1000,
            "seeds": {str(n): {"truth": v, "absent": absent, "present": 0.5} for n, v in enumerate(values)},
        }
        for arm, values in truth.items()
    }
    return {
        "claim": CLAIM,
        "date": "2026-01-01",
        "machine": "a processor",
        "beam_size": 3,
        "core_hours": 1.5,
        "arms": arms,
    }


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
    assert claim.title
    assert claim.question.endswith("?")
    assert not claim.source.endswith(".")


def test_runs_of_one_configuration_are_shared_and_shorter_trainings_are_others(tmp_path, monkeypatch):
    first = {run.arm.key: run for run in claim_runs(get_claim("geometry_kinds"), tmp_path, 1)}
    second = {run.arm.key: run for run in claim_runs(get_claim("distances"), tmp_path, 1)}
    assert first["none"].folder == second["none"].folder
    assert len({run.folder for run in (*first.values(), *second.values())}) == len(first) + len(second) - 1
    short = next(claim_runs(get_claim("geometry_kinds"), tmp_path, 1, steps=376))
    assert short.folder != first["none"].folder
    original = runs.get_recipe
    monkeypatch.setattr(
        runs,
        "get_recipe",
        lambda name: replace(found := original(name), stages=tuple(replace(s, eps=1e-7) for s in found.stages)),
    )
    assert next(claim_runs(get_claim("geometry_kinds"), tmp_path, 1)).folder != first["none"].folder
    assert (short.steps, short.recipe.stages[0].epochs) == (376, 4)
    assert short.recipe.stages[0].schedule.decay_after == (2, 3, 4)


def test_the_page_of_numbers_states_what_follows_from_them(tmp_path, capsys):
    path = tmp_path / "absent.json"
    low, high = [0.1, 0.2, 0.3, 0.2, 0.1], [0.5, 0.6, 0.8, 0.6, 0.5]
    numbers = results({"base": low, "decoder_aoa": high, "encoder": high, "encoder_aoa": low})
    path.write_text(json.dumps(numbers), encoding="utf-8")
    main(["claim", "--page", str(path)])
    page = (tmp_path / "absent.md").read_text(encoding="utf-8")
    assert "**Refuted in this world at this budget: of the 95 % intervals of 4 differences" in page
    assert ", 1 confirmed, 2 not confirmed, 1 refuted.**" in page
    # differences 0.4, 0.4, 0.5, 0.4, 0.4: mean 0.42, half of the interval t * sqrt(0.002 / 5)
    row = "| `decoder_aoa` − `base` | truth | above 0 | 0.400, 0.400, 0.500, 0.400, 0.400 | 0.420 |"
    assert f"{row} 0.364 to 0.476 | confirmed |" in page
    assert "| -0.420 | -0.476 to -0.364 | refuted |" in page
    assert page.count("not confirmed |") == 2  # no difference in absent
    assert "1.5 core-hours" in page
    assert str(path) in capsys.readouterr().out
    figure = ElementTree.parse(tmp_path / "absent.svg").getroot()
    assert len(figure.findall("{http://www.w3.org/2000/svg}circle")) == 2 * 4 * 5


def test_a_page_with_few_seeds_or_models_has_no_verdict(tmp_path):
    path = tmp_path / "absent.json"
    path.write_text(json.dumps(results({"base": [0.1], "decoder_aoa": [0.5]})), encoding="utf-8")
    assert "**No verdict" in write_page(path).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"claim": 3}, "'claim' of PATH is of type int, not str"),
        ({"core_hours": "x"}, "'core_hours' of PATH is of type str"),
        ({"arms": {"base": {}}}, "the model base of PATH has no 'parameters'"),
        ({"arms": {"base": 3}}, "the model base of PATH has no 'parameters'"),
        ({"arms": {"base": {"parameters": 1, "steps": "2"}}}, "'steps' of the model base of PATH is of type str"),
        ({"arms": {"base": {"parameters": 1, "steps": 2, "seeds": {"0": 1}}}}, "'0' of the model base of PATH is of"),
        (
            {"arms": {"base": {"parameters": 1, "steps": 2, "seeds": {"0": {"truth": "x"}}}}},
            "'truth' of seed 0 of the model base of PATH is of type str",
        ),
    ],
)
def test_a_damaged_file_of_results_is_one_sentence(tmp_path, change, message):
    path = tmp_path / "absent.json"
    path.write_text(json.dumps({**results({"base": [0.1]}), **change}), encoding="utf-8")
    with pytest.raises(DataError, match=re.escape(message.replace("PATH", str(path)))):
        write_page(path)
    assert list(tmp_path.iterdir()) == [path]


def test_results_of_an_unknown_model_are_an_error(tmp_path):
    path = tmp_path / "absent.json"
    path.write_text(json.dumps(results({"bas": [0.1]})), encoding="utf-8")
    with pytest.raises(ConfigError, match="the claim absent has no 'bas'; did you mean base"):
        write_page(path)
    assert list(tmp_path.iterdir()) == [path]


def test_seeds_without_a_value_are_not_left_out_of_a_verdict(tmp_path):
    path = tmp_path / "absent.json"
    numbers = results({"base": [0.1] * 6, "decoder_aoa": [0.5, 0.6, 0.5, 0.6, 0.5, None]})
    path.write_text(json.dumps(numbers), encoding="utf-8")
    # mean 0.44, half of the interval t * sqrt(0.003 / 5)
    assert "| 0.440 | 0.372 to 0.508 | no verdict |" in write_page(path).read_text(encoding="utf-8")


def test_a_score_that_is_not_reached_counts_with_the_whole_training(tmp_path):
    arm = {"steps": 1000, "parameters": 1}
    keys = ("none", "in_q", "in_k", "in_qk", "ln_q", "bn_q")
    arms = {key: {**arm, "seeds": {"0": {**EARLY, "steps": 400}}} for key in keys}
    arms["none"]["seeds"]["0"]["steps"] = None
    path = tmp_path / "n.json"
    path.write_text(json.dumps({**results({}), "claim": "normalized_queries", "arms": arms}), encoding="utf-8")
    page = write_page(path).read_text(encoding="utf-8")
    assert "| `in_q` − `none` | steps to truth 0.9 | below 0 | ≤ -600 | -600 | – | no verdict |" in page
    assert "| `none` | 0 | over 1,000 | 100 | 0.500 |" in page


def censored_page(tmp_path, none: list[int | None], in_q: list[int | None]) -> str:
    """Return the page of `normalized_queries` with these steps of two models, 1,000 steps a run."""
    arms = {
        key: {"steps": 1000, "parameters": 1, "seeds": {str(n): {**EARLY, "steps": s} for n, s in enumerate(steps)}}
        for key, steps in {"none": none, "in_q": in_q}.items()
    }
    path = tmp_path / "n.json"
    path.write_text(json.dumps({**results({}), "claim": "normalized_queries", "arms": arms}), encoding="utf-8")
    return write_page(path).read_text(encoding="utf-8")


def test_seeds_of_which_no_model_reaches_a_score_confirm_nothing(tmp_path):
    page = censored_page(tmp_path, [None] * 5, [None] * 5)
    assert f"| below 0 | {', '.join(['0 (neither)'] * 5)} | 0 | 0 to 0 | not confirmed |" in page
    assert "No seed has an exact difference in 1 of the 5 comparisons; these show nothing." in page
    assert "Without these seeds" not in page


def test_the_page_states_which_differences_are_bounds_and_which_verdicts_depend_on_them(tmp_path):
    page = censored_page(tmp_path, [None, 500, 500, 500, 500, 500], [400, 400, 300, 400, 400, 300])
    assert "| ≤ -600, -100, -200, -100, -100, -200 |" in page
    # mean -216.67, standard deviation 194.08, t 2.571 for five degrees of freedom: half of the interval 203.7
    assert "| -217 | -420 to -13 | confirmed |" in page
    assert "≤ and ≥" in page
    assert "Without these seeds" not in page  # confirmed by the five others, too
    page = censored_page(tmp_path, [500, 500, 500, 500, 500], [None, 400, None, 400, 400])
    assert "| ≥ 500, -100, ≥ 500, -100, -100 |" in page
    assert (
        "Without these seeds 3 are left, and the verdict on `in_q` − `none` (steps to truth 0.9): no verdict." in page
    )
    assert (tmp_path / "n.svg").read_text(encoding="utf-8").count('fill="white" stroke') == 2
    assert "≤ and ≥" not in censored_page(tmp_path, [500] * 5, [400] * 5)
    assert 'fill="white" stroke' not in (tmp_path / "n.svg").read_text(encoding="utf-8")


def test_only_chosen_models_are_trained_and_their_page_has_no_verdict(tmp_path, monkeypatch, capsys):
    started = {}
    monkeypatch.setattr("legenda.cli._parallel.run_parallel", lambda work, *_: started.update(work) or {})
    main(["claim", "absent", "--arms", "base", "encoder", "--seeds", "2", "--out", str(tmp_path)])
    assert {name.partition("-")[0] for name in started} == {"scenes.aoanet_base", "scenes.aoanet_refine"}
    assert len(started) == 4
    path = tmp_path / "some.json"
    path.write_text(json.dumps(results({"base": [0.1] * 5, "encoder": [0.5] * 5})), encoding="utf-8")
    page = write_page(path).read_text(encoding="utf-8")
    assert "**No verdict: it takes all models with at least 5 seeds" in page
    assert "legenda claim absent --arms base encoder --seeds 5" in page
    with pytest.raises(SystemExit) as stopped:
        main(["claim", "absent", "--arms", "bas", "--out", str(tmp_path)])
    assert stopped.value.code == 2
    assert "the claim absent has no 'bas'; did you mean base?" in capsys.readouterr().err


def test_the_noise_of_gradients_is_that_of_their_distribution():
    generator = np.random.default_rng(0)
    mean, deviation = np.full(50, 0.2), 0.5  # variance 50 * 0.25, squared norm 50 * 0.04
    gradients = torch.from_numpy(mean + deviation * generator.standard_normal((4000, 50)))
    assert noise_of(gradients) == pytest.approx(6.25, rel=0.05)
    assert noise_of(torch.tensor([[1.0], [-1.0]])) == float("inf")


def test_near_heads_are_those_with_negative_weights(tmp_path):
    run = next(claim_runs(get_claim("head_signs"), tmp_path, 1))
    model = create_model(run.recipe.model, **run.recipe.model_overrides, **SIZES)
    rescale = next(module for module in model.modules() if isinstance(module, DistanceRescale))
    rescale.weight.data = torch.tensor([1.0, -1.0, 0.5, -0.1, -2.0, 3.0, 1.0, 1.0])
    model.save(run.folder)
    assert PROBES["near_heads"](run) == 3 / 8


def test_unknown_claims_and_numbers_out_of_range_are_errors(capsys):
    with pytest.raises(ConfigError, match="relations"):
        get_claim("relation")
    with pytest.raises(SystemExit) as stopped:
        main(["claim", "relations", "--seeds", "0"])
    assert stopped.value.code == 2
    assert "--seeds must be at least 1" in capsys.readouterr().err
    claim = get_claim("relations")
    with pytest.raises(ConfigError, match="gsan"):
        replace(claim, comparisons=(replace(claim.comparisons[0], arm="gsa"),))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("title = 1 =", "is no claim"),
        ('title = "T"', "lacks 'arms'"),
        ('arms = []\nmeasures = []\ncomparisons = []\nword = ""', "has no option 'word'"),
        ("title = 3\narms = []\nmeasures = []\ncomparisons = []", "takes title as str, not 3"),
        ("arms = [{key = 5}]\nmeasures = []\ncomparisons = []", "takes key as str, not 5"),
        ("data = 3\narms = [{key = 'a'}]\nmeasures = []\ncomparisons = []", "is no claim"),
        ("arms = [3]\nmeasures = []\ncomparisons = []", "is no claim"),
        ('arms = []\nmeasures = [{key = "a", label = "b", chanse = 1.0}]\ncomparisons = []', "chance"),
    ],
)
def test_files_without_a_claim_are_errors(tmp_path, text, message):
    path = tmp_path / "own.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=message):
        get_claim(str(path))
