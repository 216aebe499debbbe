"""The experiments, the rule that refuses those that cannot fail, their statistics and their pages."""

import itertools
import math
import subprocess
import tomllib
from xml.etree import ElementTree

import numpy as np
import pytest
import run
from analysis import decide, holm, paired_effect, paired_share_effect, power, share_interval, sign_flip_p
from coco_boxes import relation_f1
from experiment import (
    FIRST_RULE,
    FOLDER,
    NO_PILOT,
    check_rule,
    condition_recipe,
    digest_of,
    experiment_runs,
    get_experiment,
    list_experiments,
    problems_of,
    required_seeds,
)
from measures import read_results
from page import check_design, machines, read_all, time_ratio
from run import record_design, run_experiment

from legenda.errors import ConfigError, LegendaError
from legenda.io import write_json
from legenda.recipes import _toml

T9, T9_90 = 2.2621571628, 1.8331129327
"""The 97.5 % and 95 % points of Student's t distribution with nine degrees of freedom, from a table."""


@pytest.fixture(autouse=True)
def own_plugins(forget_plugins):
    """The models that experiments register are unknown to other tests."""


def design(name="absent"):
    """A design as it would be written today, with a pilot of six seeds and the bound of all."""
    content = tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
    content["pilot"] |= {"seeds": 6, "sd": 0.06}
    content["primary"]["relevant"] = 0.05
    return content


def write_design(path, content):
    path.write_text("\n".join(f"{key} = {_toml(value)}" for key, value in content.items()), encoding="utf-8")
    return get_experiment(str(path))


@pytest.mark.parametrize("name", list_experiments())
def test_every_experiment_can_fail(name):
    experiment = get_experiment(name)
    waits = experiment.pilot is None and name not in FIRST_RULE
    assert list(problems_of(experiment)) == ([NO_PILOT] if waits else [])


def changed(**changes):
    """A change of the design `absent`: keys with dots name fields of its tables."""

    def change(content):
        for key, value in changes.items():
            table, _, field = key.partition("__")
            if field:
                content[table][field] = value
            elif value is None:
                content.pop(key)
            else:
                content[key] = value

    return change


def condition(index, **changes):
    return lambda content: content["conditions"][index].update(changes)


BROKEN = {
    "nine seeds": (changed(seeds=9), "seeds"),
    "seeds of pilots": (changed(first_seed=0), "fresh ones"),
    "no pilot": (changed(pilot=None), "pilot"),
    "too few seeds for the bound": (changed(pilot__sd=0.09), "seeds, with which"),
    "no sign": (changed(primary__paper={"cell": "a table", "condition": 1.0, "against": 1.0}), "no sign"),
    "a control that chance passes": (changed(control__at_least=0.1), "chance"),
    "a model against itself": (changed(primary__against="encoder_aoa"), "itself"),
    "other data": (condition(0, data={"families": ["complete"]}), "different data"),
    "a pilot of three seeds": (changed(pilot__seeds=3), "at least 6"),
    "a bound of its own": (changed(primary__relevant=0.06), "that of all is 0.05"),
    "a larger model": (condition(0, model={"ff_dim": 512}), "parameters"),
    "a longer training": (condition(0, training={"epochs": 200}), "steps"),
    "what weights hold": (lambda content: content["metrics"][0].update(function="mean_length"), "no score of captions"),
    "a pilot of one seed": (changed(pilot__seeds=1), "greater than"),
    "more time": (changed(pilot__seconds=[20.0, 10.0]), "equal_time"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_an_experiment_that_breaks_the_rule_is_refused(case, tmp_path):
    change, message = BROKEN[case]
    content = design()
    change(content)
    with pytest.raises(ConfigError, match=message):
        check_rule(write_design(tmp_path / f"{case.replace(' ', '_')}.toml", content))


def test_the_sign_follows_from_the_paper_and_the_metric():
    for name, sign in (("absent", 1), ("second_order_steps", -1)):  # fewer steps are better
        experiment = get_experiment(name)
        assert {experiment.predicted(primary) for primary in experiment.primaries} == {sign}


def test_the_intervals_are_those_of_a_table_of_students_t():
    values = np.arange(1, 11) / 10  # mean 0.55, variance 11/120
    effect, error = paired_effect(values), (11 / 120 / 10) ** 0.5
    assert effect.interval == pytest.approx((0.55 - T9 * error, 0.55 + T9 * error))
    assert effect.inner == pytest.approx((0.55 - T9_90 * error, 0.55 + T9_90 * error))
    assert paired_effect([0.5] * 10).interval == (0.5, 0.5)
    wider = paired_effect(values, 0.1)
    assert wider.interval[1] - wider.mean == pytest.approx(T9 * (error**2 + 0.01) ** 0.5)


def test_the_interval_of_a_share_is_clopper_and_pearsons():
    assert share_interval(0, 10) == pytest.approx((0.0, 1 - 0.025**0.1))
    assert share_interval(10, 10) == pytest.approx((0.025**0.1, 1.0))
    assert share_interval(4, 10) == pytest.approx((0.1216, 0.7376), abs=1e-4)  # a published table


def outcomes(a, b, c, d):
    """The outcomes of two models: a seeds learn with both, b with the first, c with the second, d with none."""
    return [1.0] * (a + b) + [0.0] * (c + d), [1.0] * a + [0.0] * b + [1.0] * c + [0.0] * d


@pytest.mark.parametrize(
    "shares", [(0, 0.9, 0, 0.1), (0, 1, 0, 0), (0.4, 0.1, 0, 0.5), (0.3, 0, 0.1, 0.6), (0.2, 0.3, 0.3, 0.2)]
)
def test_intervals_of_counted_seeds_cover_the_difference(shares):
    """Over all tables of ten seeds; a t interval of 0 and 1 covers 0.9 of seeds that learn in 65 of 100 experiments."""
    n, covered = 10, np.zeros(2)
    for cells in itertools.product(range(n + 1), repeat=3):
        if (last := n - sum(cells)) >= 0:
            table = (*cells, last)
            ways = math.factorial(n) / math.prod(map(math.factorial, table))
            if chance := ways * math.prod(share**count for share, count in zip(shares, table, strict=True)):
                effect, truth = paired_share_effect(*outcomes(*table)), shares[1] - shares[2]
                inside = [low - 1e-9 <= truth <= high + 1e-9 for low, high in (effect.interval, effect.inner)]
                covered += chance * np.array(inside)
    assert covered[0] > 0.94
    assert covered[1] > 0.89


@pytest.mark.parametrize("values", [(3.0, 1.0, 4.0, -1.0), (1.0,) * 5, (-2.0, 0.5, 1.0), (0.0,) * 3])
def test_the_sign_flip_test_counts_all_flips(values):
    means = [np.mean(np.multiply(values, signs)) for signs in itertools.product((1, -1), repeat=len(values))]
    smaller, larger = (np.mean([sign * mean >= sign * np.mean(values) - 1e-12 for mean in means]) for sign in (-1, 1))
    assert sign_flip_p(values) == pytest.approx(min(1.0, 2 * min(smaller, larger)))


def test_holm_multiplies_the_smallest_p_value_by_the_number_of_tests():
    assert holm({"a": 0.01, "b": 0.04, "c": 0.03}) == pytest.approx({"a": 0.03, "c": 0.06, "b": 0.06})
    assert holm({"a": 0.01}, total=14) == pytest.approx({"a": 0.14})


@pytest.mark.parametrize(
    ("mean", "spread", "p", "passed", "predicted", "verdict"),
    [
        (0.3, 0.1, 0.01, True, 1, "supported"),
        (0.3, 0.1, 0.01, True, -1, "contradicted"),
        (0.3, 0.1, 0.06, True, 1, "no harm"),
        (0.3, 0.1, 0.06, True, -1, "no relevant gain"),
        (0.3, 0.1, 0.01, False, 1, "inconclusive"),
        (0.01, 0.01, 0.01, True, 1, "no relevant effect"),
        (0.0, 0.01, 1.0, True, 1, "no relevant effect"),
        (0.0, 0.5, 1.0, True, 1, "inconclusive"),
    ],
)
def test_the_verdict_follows_from_the_numbers(mean, spread, p, passed, predicted, verdict):
    effect = paired_effect(mean + spread * np.array([-1, 1] * 5))
    assert decide(effect, p, predicted, 0.1, control_passed=passed) == verdict
    steps = decide(effect, p, predicted, 0.1, control_passed=passed, steps=True)
    assert steps == ("not faster" if verdict == "no relevant gain" else verdict)


def test_an_effect_of_seeds_that_other_images_could_undo_is_not_supported():
    values = np.array([0.02, 0.03] * 5)
    assert decide(paired_effect(values), 0.01, 1, 0.015, control_passed=True) == "supported"
    assert decide(paired_effect(values, 0.02), 0.01, 1, 0.015, control_passed=True) != "supported"


def test_the_power_after_correction_is_that_of_simulated_experiments():
    """Bonferroni's level is that of the smallest p value by Holm."""
    rng, sd, relevant, n = np.random.default_rng(0), 0.1, 0.1, 12
    found = [paired_effect(rng.normal(relevant, sd, n)).p < 0.05 / 5 for _ in range(400)]
    assert power(n, sd, relevant, 5) == pytest.approx(np.mean(found), abs=0.05)
    assert power(n, sd, relevant, 1) > power(n, sd, relevant, 24)
    assert power(n, 0.0, relevant, 5, sd / n**0.5) == pytest.approx(power(n, sd, relevant, 5))  # of the images
    assert power(n, 0.0, relevant, 5) == 1.0


def test_the_seeds_are_enough_for_both_verdicts():
    """About four fifths of a hundred simulated experiments reach the right verdict, with an effect and without one."""
    rng, n = np.random.default_rng(0), required_seeds(0.15, 0.1)
    assert n == 20
    counts = {0.0: 0, 0.1: 0}
    for truth in counts:
        for _ in range(100):
            effect = paired_effect(rng.normal(truth, 0.15, n))
            inside = effect.inner[0] > -0.1 and effect.inner[1] < 0.1
            counts[truth] += inside if truth == 0 else effect.interval[0] > 0
    assert 70 <= counts[0.0] <= 95
    assert 70 <= counts[0.1] <= 95


def numbers(first, second, name="absent"):
    """The numbers of an experiment: the truth of each seed with encoder_aoa and encoder."""

    def seeds(values):
        seconds = {"train": 10.0, "evaluate": 1.0}
        return {str(100 + n): {"truth": v, "present": v, "seconds": seconds} for n, v in enumerate(values)}

    conditions = {
        key: {"steps": 320, "parameters": 1000, "kept_bytes": 2000, "commits": ["a"], "seeds": seeds(values)}
        for key, values in (("encoder_aoa", first), ("encoder", second))
    }
    about: dict = {"experiment": name, "designs": [{"design": get_experiment(name).design, "date": "2026-01-01"}]}
    return {**about, "machine": "a processor", "beam_size": 3, "conditions": conditions}


def test_pages_state_what_follows_from_the_numbers(tmp_path, run_script):
    low = [0.4 + 0.01 * (n % 3) for n in range(get_experiment("absent").seeds)]
    write_json(tmp_path / "absent.json", numbers([value + 0.3 for value in low], low))
    assert run_script("experiments/run.py", "--pages", "--results", tmp_path)[0] == 0
    page = (tmp_path / "absent.md").read_text(encoding="utf-8")
    assert "| **supported** |" in page
    assert "0.300 to 0.300" in page
    for name in ("absent.svg", "forest.svg"):
        assert ElementTree.parse(tmp_path / name).getroot().findall("{http://www.w3.org/2000/svg}circle")
    write_json(tmp_path / "absent.json", numbers(low, [value + 0.3 for value in low]))
    assert read_all(tmp_path)["absent"].decisions[0].verdict == "contradicted"
    write_json(tmp_path / "absent.json", numbers([value - 0.3 for value in low], [value - 0.3 for value in low]))
    assert read_all(tmp_path)["absent"].decisions[0].verdict == "inconclusive"  # the control fails
    write_json(tmp_path / "absent.json", numbers(low[:5], low[:5]))
    assert read_all(tmp_path)["absent"].decisions[0].verdict is None  # seeds are missing
    write_json(tmp_path / "absent.json", {**numbers(low, low), "designs": [{"design": "another"}]})
    with pytest.raises(ConfigError, match="changes"):
        read_all(tmp_path)
    pilot = numbers(low, low)
    pilot["conditions"]["encoder"]["seeds"]["99"] = pilot["conditions"]["encoder"]["seeds"]["100"]
    write_json(tmp_path / "absent.json", pilot)
    with pytest.raises(ConfigError, match="99"):
        read_all(tmp_path)


def test_times_are_compared_on_one_machine(tmp_path):
    low = [0.4 + 0.01 * (n % 3) for n in range(get_experiment("absent").seeds)]
    content = numbers(low, low)
    first, second = (content["conditions"][key]["seeds"] for key in ("encoder_aoa", "encoder"))
    first["100"]["seconds"] = {"train": 30.0, "machine": "fast"}
    second["100"]["seconds"] = {"train": 20.0, "machine": "fast"}
    for seed in list(first)[1:]:
        first[seed]["seconds"] = {"train": 90.0, "machine": "slow"}
        second[seed]["seconds"] = {"train": 10.0, "machine": "fast"}
    write_json(tmp_path / "absent.json", content)
    result = read_all(tmp_path)["absent"]
    assert time_ratio(result, result.experiment.primary) == 1.5
    assert machines(result) == ["a processor", "fast", "slow"]
    second["100"]["seconds"]["resumed"] = True
    write_json(tmp_path / "absent.json", content)
    assert time_ratio(read_all(tmp_path)["absent"], result.experiment.primary) is None


def test_a_design_that_changed_after_its_first_run_must_say_so(tmp_path):
    result = tmp_path / "absent.json"
    experiment, file = get_experiment("absent"), tmp_path / "absent.toml"
    check_design(experiment, [{"design": experiment.changes[0].design}])  # the change leads to the present design
    with pytest.raises(ConfigError, match="now123"):
        check_design(experiment.replace(design="now123"), [{"design": experiment.changes[0].design}])
    file.write_text("title = 'Mine'")
    with pytest.raises(ConfigError, match=r"absent\.toml"):
        record_design(experiment, file, result)
    commit(tmp_path)
    assert [entry["design"] for entry in record_design(experiment, file, result)] == [experiment.design]
    other = [{"design": "another", "date": "2026-01-01"}]
    write_json(result, {"experiment": "absent", "conditions": {}, "designs": other})
    with pytest.raises(ConfigError, match="changes"):
        record_design(experiment, file, result)


def test_a_changed_tree_is_refused(tmp_path, monkeypatch):
    """Changed code, and new files of code, but not the numbers and pages that runs write."""
    code, results, which = tmp_path / "src" / "a.py", tmp_path / "research" / "results", tmp_path / "which.md"
    for path in (code, results / "absent.json", which):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("a = 1")
    for name, value in (("ROOT", tmp_path), ("RESULTS", results), ("WHICH", which)):
        monkeypatch.setattr(run, name, value)
    with pytest.raises(ConfigError, match="no git checkout"):
        run.check_tree()
    commit(tmp_path)
    run.check_tree()
    (results / "absent.json").write_text("{}")
    (results / "branches.json").write_text("{}")
    which.write_text("b")
    run.check_tree()
    assert not run.code_commit().endswith("-dirty")
    (tmp_path / "src" / "new.py").write_text("")
    with pytest.raises(ConfigError, match=r"src/new\.py"):
        run.check_tree()
    (tmp_path / "src" / "new.py").unlink()
    code.write_text("a = 2")
    with pytest.raises(ConfigError, match=r"src/a\.py"):
        run.check_tree()
    assert run.code_commit().endswith("-dirty")


def commit(folder):
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "-A"], [*who, "commit", "-qm", "a"]):
        subprocess.run(["git", *command], cwd=folder, check=True)


def test_wording_is_no_part_of_the_design(tmp_path):
    content = design()
    before = write_design(tmp_path / "before.toml", content).design
    after = write_design(tmp_path / "notes.toml", {**content, "notes": ["Seen after the runs."]}).design
    assert before == after
    assert write_design(tmp_path / "seeds.toml", {**content, "seeds": 30}).design != before


def test_trainings_that_differ_have_digests_of_their_own():
    """Rates of a schedule, its kind, its other fields and nested options: no two share a run folder."""
    recipe = condition_recipe(get_experiment("absent").conditions["encoder"])
    schedules = (
        {"kind": "constant", "learning_rate": 3e-4},
        {"kind": "constant", "learning_rate": 3e-5},
        {"kind": "step_decay", "learning_rate": 3e-5},
        {"kind": "step_decay", "learning_rate": 3e-5, "warmup_steps": 10},
        {"kind": "step_decay", "learning_rate": 3e-5, "decay": 0.7},
    )
    recipes = [recipe.override({"training": {"schedule": schedule}}) for schedule in schedules]
    recipes += [recipe.override({"training": {"self_critical": {"num_samples": 7}}}), recipe.with_seed(3)]
    assert len({digest_of(changed) for changed in recipes}) == len(recipes)
    assert digest_of(recipes[0]) == digest_of(recipe.override({"training": {"schedule": dict(schedules[0])}}))


def test_conditions_that_differ_have_folders_of_their_own():
    for name in list_experiments():
        recipes = [condition_recipe(condition) for condition in get_experiment(name).conditions.values()]
        distinct = {str({**recipe.to_dict(), "summary": ""}) for recipe in recipes}
        assert len({digest_of(recipe) for recipe in recipes}) == len(distinct), name


TINY = {
    "data": {"families": ["absent"], "train": 12, "validation": 3, "test": 18},
    "model": {"dim": 8, "num_heads": 2, "num_layers": 1, "ff_dim": 8},
    "training": {"epochs": 1, "batch_size": 6, "eval_beam_size": 1},
    "conditions": [
        {"key": "encoder", "label": "SAN", "recipe": "scenes.transformer"},
        {"key": "encoder_aoa", "label": "N-SAN", "recipe": "scenes.transformer", "model": {"norm": "in"}},
    ],
    "secondary": [],
    "seeds": 13,
}


def tiny():
    content = {**design(), **TINY}
    content["primary"].pop("equal_time")
    content["pilot"]["seconds"] = [10.0, 10.0]
    content.pop("changes")
    return content


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_a_pilot_is_kept_and_resumed_with_equal_numbers(tmp_path, run_script):
    path, out = tmp_path / "tiny.toml", tmp_path / "out"
    write_design(path, tiny())
    options = ("--pilot", 2, "--out", out, "--results", tmp_path)
    printed = [run_script("experiments/run.py", path, *options) for _ in range(2)]
    assert [code for code, _, _ in printed] == [0, 0]
    assert len({line for _, text, _ in printed for line in text.splitlines() if line.startswith("differences")}) == 1
    assert len({p.parent.name for p in out.glob("*/seed0")}) == 2
    data = [tomllib.loads((p.with_suffix(".toml")).read_text())["data"]["seed"] for p in sorted(out.glob("*/seed1"))]
    assert data == [1, 1]
    kept = read_results(tmp_path / "tiny.json")
    assert [(each["condition"], each["seed"]) for each in kept["pilots"]] == [
        (key, seed) for seed in (0, 1) for key in ("encoder", "encoder_aoa")
    ]
    assert kept["conditions"] == {}
    rates = ("--change", "training.schedule.learning_rate=1e-4", "--seeds", 1, "--conditions", "encoder")
    assert run_script("experiments/run.py", path, *options, *rates)[0] == 0
    tried = [each for each in read_results(tmp_path / "tiny.json")["pilots"] if each["changes"]]
    assert [each["seed"] for each in tried] == [0]
    assert "truth" not in tried[0]
    assert len(list(out.glob("*/seed0/evaluation_test*.json"))) == 2  # those of the pilot that changes nothing


@pytest.mark.parametrize(("code", "raised"), [(2, LegendaError), (143, SystemExit)])
def test_a_run_that_is_stopped_has_not_failed(code, raised, tmp_path, monkeypatch):
    def stop(_command):
        raise SystemExit(code)

    monkeypatch.setattr(run, "legenda", stop)
    monkeypatch.setattr(run, "draw_data", lambda _data: None)
    stopped = next(experiment_runs(get_experiment("absent"), tmp_path, [0]))
    with pytest.raises(raised):
        run.run_condition(stopped)
    assert not (stopped.folder / run.SECONDS).exists()


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_numbers_outlive_their_run_folders(tmp_path, monkeypatch):
    """Seeds with numbers are not trained again, wherever their folders are, and stay beside those of new seeds."""
    path, out = tmp_path / "tiny.toml", tmp_path / "out"
    write_design(path, tiny())
    commit(tmp_path)
    monkeypatch.setattr(run, "check_tree", lambda: None)
    options = run.Options(out=out, results=tmp_path, seeds=1)
    run_experiment(str(path), options, None)
    first = read_results(tmp_path / "tiny.json")["conditions"]
    assert {key: list(value["seeds"]) for key, value in first.items()} == {"encoder": ["100"], "encoder_aoa": ["100"]}
    out.rename(tmp_path / "elsewhere")
    run_experiment(str(path), run.Options(out=out, results=tmp_path, seeds=2), None)
    both = read_results(tmp_path / "tiny.json")["conditions"]
    assert not list(out.glob("*/seed100"))
    assert {key: value["seeds"]["100"] for key, value in both.items()} == {
        key: value["seeds"]["100"] for key, value in first.items()
    }
    assert {len(value["seeds"]) for value in both.values()} == {2}


def test_relations_are_scored_against_what_two_references_state():
    references = {"1": ["a cup on a table", "a cup on wood", "a cup"], "2": ["a dog under a bed", "a dog", "a bed"]}
    assert relation_f1({"1": "a cup on a table", "2": "a dog"}, references) == pytest.approx(1 / 5)
    assert relation_f1({"1": "a cup", "2": "a dog on a bed"}, references) == 0
