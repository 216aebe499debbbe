"""`legenda train`, `recipes` and `evaluate` on runs of two stages, several seeds, and recipes of one's own."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import legenda
from command_results import error_of
from legenda.cli.main import main
from legenda.papers import get_recipe
from legenda.recipes import continue_from
from legenda.training.checkpoint import read_progress

pytestmark = pytest.mark.usefixtures("one_thread", "forget_plugins")

SMALL = "model.dim=8 model.num_heads=2 model.num_layers=1 model.ff_dim=8"
FEW = "data.train=12 data.validation=3 data.test=3"
SHORT = "training.epochs=1 training.batch_size=6 training.eval_beam_size=1"
DRAWN = "training.objective=self_critical training.self_critical.num_samples=2 training.self_critical.max_length=6"


@pytest.fixture(scope="module")
def seeds(tmp_path_factory) -> Path:
    """A folder with the runs of two seeds."""
    folder = tmp_path_factory.mktemp("seeds")
    main(f"train scenes.transformer --out {folder} --seeds 2 {SMALL} {FEW} {SHORT}".split())
    return folder


def config_of(folder: Path) -> dict:
    return json.loads((folder / "config.json").read_text())


def test_seeds_are_runs_of_their_own(seeds):
    assert sorted(path.name for path in seeds.iterdir()) == ["seed0", "seed1"]
    assert [config_of(seeds / f"seed{seed}")["training"]["seed"] for seed in (0, 1)] == [0, 1]
    first, second = (legenda.load(seeds / f"seed{seed}").state_dict() for seed in (0, 1))
    assert any(not torch.equal(tensor, second[name]) for name, tensor in first.items())


def test_a_folder_of_seeds_is_evaluated_run_by_run(seeds, tmp_path, capsys):
    copy = Path(shutil.copytree(seeds, tmp_path / "seeds"))
    main(f"evaluate {copy} --split val".split())
    *_, line = (line.split() for line in capsys.readouterr().out.splitlines() if line.split()[:1] == ["CIDEr-D"])
    scores = [json.loads((copy / f"seed{n}" / "evaluation_val.json").read_text())["scores"]["CIDEr-D"] for n in (0, 1)]
    half = 12.7062 * np.std(scores, ddof=1) / np.sqrt(2)  # the quantile of Student's distribution of one degree
    bounds = [f"{np.mean(scores) - half:.4f}", "..", f"{np.mean(scores) + half:.4f}"]
    assert line == ["CIDEr-D", f"{np.mean(scores):.4f}", f"{np.std(scores, ddof=1):.4f}", *bounds]


def test_a_report_of_seeds_has_their_mean_and_tells_runs_apart(seeds, tmp_path):
    other, page = tmp_path / "other", tmp_path / "report.html"
    wide = SMALL.replace("ff_dim=8", "ff_dim=16")
    main(f"train scenes.transformer --out {other} --seeds 2 {wide} {FEW} {SHORT}".split())
    main(f"report {seeds} {other} --split val --out {page}".split())
    content = page.read_text().replace("\\u00b1", "±")
    assert f"{seeds}, mean ± standard deviation over 2 seeds" in content
    pooled = re.search(r"CIDEr-D (\S+) ± (\S+) \((\S+) to (\S+)\)", content)
    assert pooled is not None
    mean, deviation, low, high = map(float, pooled.groups())
    half = 12.7062 * deviation / np.sqrt(2)
    assert (low, high) == pytest.approx((mean - half, mean + half), abs=0.006)  # of numbers with three decimals
    assert f"{seeds} minus {other} over pairs of seeds" in content
    assert "model.ff_dim=16, training.seed=0)" in content


def test_steps_are_traced(tmp_path):
    main(f"train scenes.transformer --out {tmp_path} --profile-steps 1 {SMALL} {FEW} {SHORT}".split())
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]


def test_runs_are_evaluated_together(seeds, capsys):
    main(f"evaluate {seeds}/seed0 {seeds}/seed1 --split test --beam-size 2".split())
    assert "CIDEr-D" in capsys.readouterr().out
    written = json.loads((seeds / "seed0" / "evaluation_test_ensemble.json").read_text())
    assert written["runs"] == [f"{seeds}/seed0", f"{seeds}/seed1"]
    assert written["images"] == len(written["captions"]) == 3
    assert not (seeds / "seed0" / "evaluation_test.json").exists()


def test_a_run_starts_from_another(seeds, tmp_path, capsys):
    out = tmp_path / "run"
    # Another size is named in no option: it is that of the run.
    main(
        f"train scenes.ngsan --init-from {seeds}/seed0 --out {out} {FEW} {SHORT} {DRAWN} training.schedule=constant "
        "training.schedule.learning_rate=1e-9".split()
    )
    config = config_of(out)
    assert config["model"]["name"] == "transformer"
    assert config["model"]["dim"] == 8
    assert config["training"]["objective"] == "self_critical"
    assert config["training"]["schedule"] == {"kind": "constant", "learning_rate": 1e-9, "warmup_steps": 0}
    assert (out / config["init_from"]).resolve() == (seeds / "seed0").resolve()
    assert f"next: legenda evaluate {out}" in capsys.readouterr().out
    again = tmp_path / "further" / "again"
    main(f"train --config {out}/config.json --out {again}".split())
    assert (again / "model.safetensors").read_bytes() == (out / "model.safetensors").read_bytes()
    assert (again / config_of(again)["init_from"]).resolve() == (seeds / "seed0").resolve()


@pytest.mark.parametrize(("option", "objective"), [("", "self_critical"), ("--stages first", "cross_entropy")])
def test_one_of_two_stages_starts_from_another_run(seeds, option, objective):
    stages = "first" if option else "all"
    recipe = continue_from(get_recipe("flickr8k.ngsan"), seeds / "seed0", stages).select_stages(stages)
    assert [stage.objective for stage in recipe.stages] == [objective]
    assert (recipe.model, recipe.model_overrides["dim"]) == ("transformer", 8)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("training.schedule=noam training.schedule.learning_rate=1", "has no option 'learning_rate'"),
        ("--init-from nowhere", "nowhere is not a folder with a model"),
        ("--device cpu --devices 1000000", "--devices is 1000000, but this machine has "),
        ("--stages first", "--stages first needs a recipe of two stages"),
        ("fine_tuning.epochs=3", "a recipe has no part 'fine_tuning'; its stages are training"),
        ("training_2.epochs=3", "a recipe has no part 'training_2'; its stages are training"),
        ("--init-from photo fine_tuning.epochs=1", "so the other one is training"),
        ("training.learning_rate=1", "training has no option 'learning_rate'; did you mean schedule.learning_rate?"),
        (f"{FEW} training.monitor=trut", "training.monitor='trut' is not a validation score; did you mean truth?"),
        (f"{FEW} task=vqa", "transformer is a model for captioning, not for vqa"),
        (f"{FEW} {DRAWN} training.self_critical.rewards={{CIDEr=1.0}}", "no reward 'CIDEr'; did you mean CIDEr-D?"),
        ("training.precision=fp16 --device cpu", "models cannot compute in fp16 on the CPU"),
        ("--seeds 2 training.seed=3", "--seeds sets the seed of every run, from 0; leave out training.seed"),
        ("--seeds 2 name=5 summary=seeded training.epochs=x", "training.epochs must be a valid integer"),
        ('name="a\\u0000b"', "must be that of a file"),
        ("data.families=[]", "families must name at least one of near, size"),
    ],
)
def test_an_error_is_one_sentence(tmp_path, monkeypatch, run_command, line, message):
    monkeypatch.chdir(tmp_path)
    assert message in error_of(run_command(f"train scenes.transformer {line}"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="runs processes on the CPU")
def test_two_processes_are_started_by_the_command_and_one_of_them_speaks(tmp_path):
    line = f"train scenes.transformer --out {tmp_path}/run --devices 2 {SMALL} {FEW} {SHORT}"
    ended = subprocess.run(
        [sys.executable, "-m", "legenda", *line.split()], capture_output=True, text=True, check=False, timeout=200
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("next: legenda evaluate") == 1
    assert read_progress(tmp_path / "run").finished
