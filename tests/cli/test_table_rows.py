"""`legenda table`: its rows as commands, in parallel processes, and the scores of their seeds."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from legenda.cli._parallel import run_parallel
from legenda.cli.table import process_environments
from legenda.papers import all_tables, get_table, shared_recipe
from legenda.report.tables import Measured, score_table

pytestmark = pytest.mark.usefixtures("one_thread")

TIMEOUT = 600
"""Seconds; generous, for a busy machine."""


@pytest.fixture(autouse=True, scope="module")
def estimated() -> Iterator[list[list[str]]]:
    """The arguments of calls whose hours are estimated, which is left out here."""
    calls: list[list[str]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("legenda.cli.table.print_estimate_of", calls.append)
        yield calls


def test_without_a_table_it_lists_them(run_command):
    code, out, _ = run_command("table")
    assert code == 0
    lines = out.splitlines()[:-2]
    assert [line.split()[0] for line in lines] == list(all_tables())
    assert lines[1].endswith("Which normalization of the queries (Guo et al., CVPR 2020, Table 2)")


def test_a_run_on_other_data_is_refused(tmp_path, run_command):
    run = tmp_path / "scenes.transformer" / "seed0"
    run.mkdir(parents=True)
    (run / "config.json").write_text('{"recipe": "scenes.transformer", "data": {"kind": "scenes", "seed": 7}}')
    recipe = shared_recipe("ngsan.table2.none", "all", "scenes.")[0]
    run.parent.rename(tmp_path / recipe)
    code, _, err = run_command(f"table ngsan.table2 --scenes --rows none --out {tmp_path}")
    assert code == 2
    assert "holds a run on other data" in err


def test_scores_of_seeds_have_mean_and_standard_deviation():
    scores = {
        "none": [{"CIDEr-D": 1.284, "BLEU-4": 0.38, "SPICE": None}, {"CIDEr-D": 1.288, "BLEU-4": 0.386}],
        "in": [{"CIDEr-D": 1.3, "BLEU-4": 0.393}],
    }
    table = score_table(get_table("ngsan.table2"), scores, {"ln": "training failed"}, "test", 3, scenes=False)
    assert table.metrics == ("BLEU-4", "METEOR", "ROUGE-L", "CIDEr-D", "SPICE")
    san, ln, bn, _, without = table.rows
    assert [str(score) for score in san.here] == ["38.3 ± 0.4", "None", "None", "128.6 ± 0.3", "None"]
    assert san.lines()[1] == ("here", ["38.3 ± 0.4", "–", "–", "128.6 ± 0.3", "–"])
    assert without.here[3] == Measured(130.0)
    assert (ln.here, ln.note, bn.note) == (None, "training failed", "")
    assert any("over at most 2 seeds" in note for note in table.notes)
    assert "not comparable" not in table.lead


@pytest.mark.parametrize(
    ("devices", "visible", "processes", "environments"),
    [
        (0, None, None, [{"OMP_NUM_THREADS": "8"}]),
        (1, None, 3, [{"OMP_NUM_THREADS": "2"}] * 3),
        (2, None, None, [{"CUDA_VISIBLE_DEVICES": "0"}, {"CUDA_VISIBLE_DEVICES": "1"}]),
        (2, "5,7", 3, [{"CUDA_VISIBLE_DEVICES": device} for device in ("5", "7", "5")]),
    ],
)
def test_each_process_has_a_device_or_a_share_of_the_cores(monkeypatch, devices, visible, processes, environments):
    monkeypatch.setattr("torch.cuda.device_count", lambda: devices)
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert process_environments(processes) == environments


def test_parallel_jobs_have_environments_and_failures_are_independent(monkeypatch, capfd):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    work = {"a": [["models"], ["wrong"]], "b": [["models"]], "c": [["train"]]}
    failed = run_parallel(work, [{"OMP_NUM_THREADS": "1"}] * 2)
    assert set(failed) == {"a", "c"}
    assert failed["a"].startswith("legenda wrong: there is no such command")
    assert failed["c"].startswith("legenda train: the recipe comes first")
    assert f"c  {failed['c']}" in capfd.readouterr().err
    assert os.environ["OMP_NUM_THREADS"] == "7"


def test_a_worker_exits_with_its_parent():
    worker = subprocess.Popen(
        [sys.executable, "-m", "legenda.cli._parallel", "train", "scenes.transformer", "training.epochs=100000"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    worker.stdin.close()  # as the system does for a process that is killed
    assert worker.wait(TIMEOUT) == 1
    assert worker.stderr.read() == ""
    worker.stderr.close()


@pytest.mark.parametrize("name", ["ngsan.table4", "aoanet.table1", "xlan.table3", "mdsan.table12"])
def test_rows_that_are_recipes_are_trained_and_others_are_not(monkeypatch, tmp_path, run_command, name):
    """All jobs are created and checked; only the training itself is left out."""
    work: dict[str, list[list[str]]] = {}
    monkeypatch.setattr("legenda.cli.table.run_parallel", lambda jobs, _: work.update(jobs) or {})
    code, printed, _ = run_command(f"table {name} --scenes training.epochs=2 --seeds 2 --out {tmp_path}/out")
    assert code == 0
    trained = [row for row in get_table(name).rows if row.recipe is not None]
    recipes = list(dict.fromkeys(shared_recipe(row.recipe, "all", "scenes.")[0] for row in trained))
    assert list(work) == [f"{recipe}/seed{seed}" for recipe in recipes for seed in (0, 1)]
    recipe, out = recipes[-1], f"{tmp_path}/out"
    training, evaluation = work[f"{recipe}/seed1"]
    assert training == [*("train", recipe, "training.epochs=2", "training.seed=1"), *("--out", f"{out}/{recipe}/seed1")]
    assert evaluation[:2] == ["evaluate", f"{out}/{recipe}/seed1"]
    assert " here " not in printed.partition("Lines")[0]
