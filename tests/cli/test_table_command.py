"""`legenda table`: rows on a few scenes, called again, failing, as commands, and compared with the paper's scores."""

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from command_results import error_of
from default_data import write_translations
from legenda.cli._parallel import run_parallel
from legenda.cli.main import main
from legenda.cli.table import process_environments
from legenda.config import to_json
from legenda.models.registry import configure_sizeless
from legenda.papers import PaperRow, get_recipe, get_table, shared_recipe
from legenda.recipes import parse_changes
from legenda.report.tables import score_table

pytestmark = pytest.mark.usefixtures("one_thread")

TABLE = "table ngsan.table2 --scenes model.dim=8 model.num_heads=2 model.num_layers=1 model.ff_dim=8"
FEW = "data.train=12 data.validation=3 data.test=18"
SHORT = "training.epochs=1 training.batch_size=6 training.eval_beam_size=1"
ROWS = "--rows none in --beam-size 1"
NONE, IN, BN = (f"scenes.ngsan.{name}/seed0" for name in ("table1.transformer_2", "table1.nsan_2", "table2.bn"))
"""The runs of the rows none, in and bn, which the tables share."""
TIMEOUT = 600
"""Seconds; generous, for a busy machine."""


def run_here(jobs: dict[str, list[list[str]]], _: object) -> dict[str, str]:
    """Run commands in this process, and give the last line of each job that fails, as `run_parallel` does."""
    failed = {}
    for name, commands in jobs.items():
        with contextlib.redirect_stderr(io.StringIO()) as stderr, contextlib.redirect_stdout(io.StringIO()):
            try:
                for command in commands:
                    main(command)
            except SystemExit:
                failed[name] = stderr.getvalue().splitlines()[-1]
    return failed


@pytest.fixture(autouse=True, scope="module")
def one_process() -> Iterator[None]:
    """Jobs run in this process, and their hours are not estimated."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("legenda.cli.table.run_parallel", run_here)
        patch.setattr("legenda.cli.table.print_estimate_of", lambda _: None)
        yield


@pytest.fixture
def work(monkeypatch) -> dict[str, list[list[str]]]:
    """The jobs that the next command would run."""
    work: dict[str, list[list[str]]] = {}
    monkeypatch.setattr("legenda.cli.table.run_parallel", lambda jobs, _: work.update(jobs) or {})
    return work


@dataclass(frozen=True)
class Resumed:
    """A table's folder after a call with one row and a call with two; trained: when the first row was trained."""

    out: Path
    trained: float
    stdout: str


@pytest.fixture(scope="module")
def resumed(tmp_path_factory) -> Resumed:
    """The folder of a table that was called again after its first row was evaluated."""
    out = tmp_path_factory.mktemp("table") / "out"
    main(f"{TABLE} {FEW} {SHORT} {ROWS.replace(' in', '')} --out {out}".split())
    trained = (out / NONE / "model.safetensors").stat().st_mtime
    with contextlib.redirect_stdout(io.StringIO()) as stdout:
        main(f"{TABLE} {FEW} {SHORT} {ROWS} --out {out}".split())
    return Resumed(out, trained, stdout.getvalue())


def test_a_table_that_is_called_again_trains_no_row_twice(resumed):
    assert (resumed.out / NONE / "model.safetensors").stat().st_mtime == resumed.trained
    assert json.loads((resumed.out / IN / "config.json").read_text())["name"] == "scenes.ngsan.table1.nsan_2"


def test_it_prints_both_scores_and_that_scenes_are_not_comparable(resumed):
    out, printed = resumed.out, " ".join(resumed.stdout.split())
    assert "SAN paper 38.4 28.6 58.4 128.6 22.6 – here" in printed
    assert "LN paper 38.5 28.6 58.3 128.2 22.5 – BN paper" in printed
    assert "not comparable" in printed
    assert printed.endswith(f"{out}/ngsan.table2.html: the table as a page; {out}/ngsan.table2.md: as Markdown")
    for row, label in ((NONE, "SAN"), (IN, "IN w/o γ, β")):
        scores = json.loads((out / row / "evaluation_test.json").read_text())["scores"]
        measured = [scores[name] for name in ("BLEU-4", "ROUGE-L", "CIDEr-D", "truth")]
        four, rouge, cider, truth = (f"{100 * score:.1f}" for score in measured)
        text = (out / "ngsan.table2.md").read_text()
        assert f"| {label} | paper |" in text
        assert f"|  | here | {four} | – | {rouge} | {cider} | – | {truth} |" in text


def test_a_row_that_fails_is_named_and_the_others_are_printed(resumed, run_command):
    out = resumed.out
    (out / BN).mkdir(parents=True)
    (out / BN / "other.txt").write_text("")
    code, printed, err = run_command(f"{TABLE} {FEW} {SHORT} --rows none bn in --beam-size 1 --out {out}")
    assert code == 2
    reason = f"legenda train: {out}/{BN} is not empty and holds no run; name another folder with --out"
    assert f"legenda table: 1 of 3 trainings failed: {BN} ({reason}); remove the cause and call again" in err
    assert printed.count(" here ") == 2
    assert f"- BN: training failed: {reason}" in (out / "ngsan.table2.md").read_text()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("table ngsan.tabel2", "there is no table 'ngsan.tabel2'; did you mean ngsan.table2?"),
        ("table ngsan.table2 --scenes --rows none inn", "ngsan.table2 has no row 'inn'; did you mean in?"),
        (
            "table ngsan.table2 --scenes --seeds 2 training.seed=3",
            "every run, from 0; leave out training.seed",
        ),
        (
            "table ngsan.table2 --scenes --seeds 2 training={seed=3}",
            "every run, from 0; leave out training.seed",
        ),
        ("table ngsan.table2 --scenes --seeds 2 data.seed=1 training.epoch=3", "training has no option 'epoch'"),
        ("table ngsan.table2 --scenes training.epoch=3", "row none: training has no option 'epoch'"),
        ("table ngsan.table9 --scenes", "vqa2.online.mcan_small has no small model on the embedded scenes, as"),
        ("table ngsan.table5 DATA", "COCO's server scores ngsan.table5; name features of test2014 with --test-feat"),
        (
            "table ngsan.table5 DATA --test-features f.hdf5:grids",
            "f.hdf5:grids does not exist; name features of test20",
        ),
        ("table ngsan.table2 --rows in", "dataset_coco.json does not exist; name the data with data.annotations= and"),
    ],
)
def test_an_error_is_one_sentence_and_nothing_is_written(tmp_path, monkeypatch, run_command, line, message):
    monkeypatch.chdir(tmp_path)
    assert message in error_of(
        run_command(line.replace("DATA", f"data.annotations={__file__} data.features={__file__}"))
    )
    assert list(tmp_path.iterdir()) == []


def test_features_of_the_test_images_may_be_grids_of_a_file(tmp_path, run_command, work):
    data = f"data.annotations={__file__} data.features={__file__}"
    (tmp_path / "f.hdf5").touch()
    run_command(f"table ngsan.table5 {data} --test-features {tmp_path}/f.hdf5:grids --out {tmp_path / 'out'}")
    assert len(work) == 2


@pytest.mark.parametrize(
    "change", [{}, {"metrics": "auto"}, {"beam_size": 2}, {"data": {"kind": "karpathy"}}, {"scores": None}]
)
def test_an_evaluation_with_other_settings_is_repeated(resumed, run_command, work, tmp_path, change):
    """As after `legenda evaluate` with other options."""
    out = tmp_path / "out"
    shutil.copytree(resumed.out, out)
    path = out / NONE / "evaluation_test.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    assert run_command(f"{TABLE} {FEW} {SHORT} {ROWS} --out {out}")[0] == 0
    evaluation = ["evaluate", f"{out}/{NONE}", "--split", "test", "--beam-size", "1", "--metrics", "fast"]
    assert work == ({NONE: [evaluation]} if change else {})


def test_another_table_uses_the_runs_and_ensembles_train_their_members(resumed, monkeypatch, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(resumed.out, out)
    table = replace(
        get_table("ngsan.table6"),
        name="both",
        rows=(PaperRow("one", "coco.transformer", (None,) * 6), PaperRow("two", "coco.nsan", (None,) * 6, members=2)),
    )
    monkeypatch.setattr("legenda.cli.table.get_table", lambda _: table)
    line = f"table both --scenes {TABLE.partition('--scenes')[2]} {FEW} {SHORT} --beam-size 1 --out {out}"
    main(line.split())
    members = [out / "scenes.ngsan.table1.nsan_2" / f"seed{seed}" for seed in (0, 1)]
    assert json.loads((members[1] / "config.json").read_text())["training"]["seed"] == 1
    assert (members[0] / "model.safetensors").stat().st_mtime == (out / IN / "model.safetensors").stat().st_mtime
    evaluation = json.loads((members[1] / "evaluation_test_ensemble.json").read_text())
    assert evaluation["runs"] == [str(member) for member in reversed(members)]
    text = (out / "both.md").read_text()
    for score in (evaluation["scores"], json.loads((out / NONE / "evaluation_test.json").read_text())["scores"]):
        assert f"| {100 * score['BLEU-4']:.1f} |" in text
    monkeypatch.setattr("legenda.cli.table.run_parallel", lambda *_: pytest.fail("all rows are evaluated"))
    main(line.split())


def copy_with(resumed, folder, **changes):
    """A copy of a table's folder whose row none has other settings, by the parts of config.json."""
    shutil.copytree(resumed.out, folder)
    path = folder / NONE / "config.json"
    config = json.loads(path.read_text())
    for part, fields in changes.items():
        config[part] |= fields
    path.write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"data": {"seed": 7}}, "data.seed is 7 there, 0 here"),
        ({"model": {"dim": 16}}, "model.dim is 16 there, 8 here"),
        ({"model": {"name": "mdsan"}}, "model.name is mdsan there, transformer here"),
        ({"training": {"epochs": 3}}, "training.epochs is 3 there, 1 here"),  # the table's changes name them
    ],
)
def test_a_run_of_another_row_is_refused(resumed, tmp_path, run_command, changes, field):
    out = copy_with(resumed, tmp_path / "out", **changes)
    assert f"holds a run with other settings ({field})" in error_of(
        run_command(f"{TABLE} {FEW} {SHORT} {ROWS} --out {out}")
    )


def test_a_run_that_was_trained_otherwise_is_printed_with_the_difference(resumed, tmp_path, run_command, work):
    """As on several devices, with settings that the table's changes do not name."""
    out = copy_with(resumed, tmp_path / "out", training={"eps": 1e-7, "weight_decay": 0.5})
    code, printed, _ = run_command(f"{TABLE} {FEW} {SHORT} {ROWS} --out {out}")
    assert (code, work, printed.count(" here ")) == (0, {}, 2)
    for text in (printed, (out / "ngsan.table2.md").read_text(), (out / "ngsan.table2.html").read_text()):
        assert text.count("training.weight_decay 0.5 instead of 0.0") == 1
        assert text.count("training.eps 1e-07 instead of 1e-08") == 1


def test_other_changes_of_a_table_need_no_other_folder_where_they_meet_no_run(resumed, tmp_path, run_command, work):
    out = copy_with(resumed, tmp_path / "out")
    assert run_command(f"{TABLE} {FEW} {SHORT} training.eps=1e-7 --rows bn --out {out}")[0] == 0
    assert list(work) == [BN]


@pytest.mark.parametrize("name", ["aoanet.table1_xe", "aoanet.table4", "xlan.table3"])
def test_rows_of_cross_entropy_take_changes_of_both_stages(name, tmp_path, run_command, work):
    """So `..._xe` tables, and tables of one stage, use the runs of tables of both."""
    files = f"data.annotations={__file__} data.features={__file__}"
    changes = f"{files} fine_tuning.batch_size=40 training.batch_size=80"
    assert run_command(f"table {name} {changes} --estimate none --out {tmp_path}/out")[0] == 0
    assert work
    for (train, recipe, *arguments), *_ in work.values():
        assert (train, "training.batch_size=80" in arguments) == ("train", True)
        has_two = len(get_recipe(recipe).stages) == 2
        assert ("fine_tuning.batch_size=40" in arguments) == has_two == ("--stages" in arguments)
    wrong = run_command(f"table {name} {files} fine_tuning.batchsize=40 --estimate none --out {tmp_path}/out")
    assert "fine_tuning" in error_of(wrong)


def test_a_table_of_cross_entropy_uses_the_first_stage_of_a_run_of_both(tmp_path, run_command, work):
    files = f"data.annotations={__file__} data.features={__file__}"
    folder = tmp_path / "coco.aoanet" / "seed0"
    folder.mkdir(parents=True)
    recipe = get_recipe("coco.aoanet").override(parse_changes([*files.split(), "fine_tuning.batch_size=40"]))
    parts = recipe.to_dict()
    parts["model"] = {"name": "aoanet", **to_json(configure_sizeless("aoanet", recipe.model_overrides))}
    (folder / "config.json").write_text(json.dumps({**parts, "data": to_json(recipe.data, folder)}))
    (folder / "model_stage1.safetensors").write_bytes(b"")
    line = f"table aoanet.table1_xe {files} --rows aoanet --estimate none --out {tmp_path}"
    for changes in ("", "fine_tuning.batch_size=40"):
        assert run_command(f"{line} {changes}")[0] == 0
        ((evaluate,),) = [work.pop("coco.aoanet/seed0")]
        assert evaluate[:2] == ["evaluate", str(folder)]
        assert evaluate[evaluate.index("--stage") + 1] == "1"


def test_scores_of_seeds_have_mean_and_standard_deviation():
    scores = {
        "none": [{"CIDEr-D": 1.284, "BLEU-4": 0.38, "SPICE": None}, {"CIDEr-D": 1.288, "BLEU-4": 0.386}],
        "in": [{"CIDEr-D": 1.3, "BLEU-4": 0.393}],
    }
    table = score_table(
        get_table("ngsan.table2"), scores, {"ln": "training failed"}, "test", {"beam_size": 3}, scenes=False
    )
    assert table.metrics == ("BLEU-4", "METEOR", "ROUGE-L", "CIDEr-D", "SPICE")
    san, ln, bn, _, without = table.rows
    assert san.scores["here"] == ["38.3 ± 0.4", "–", "–", "128.6 ± 0.3", "–"]
    assert without.scores["here"][3] == "130.0"
    assert ("here" in ln.scores, ln.note, bn.note) == (False, "training failed", "")
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
    work = {"a": [["--version"], ["wrong"]], "b": [["--version"]], "c": [["trian"]]}
    failed = run_parallel(work, [{"OMP_NUM_THREADS": "1"}] * 2)
    assert set(failed) == {"a", "c"}
    assert failed["a"].startswith("legenda wrong: there is no such command")
    assert failed["c"].startswith("legenda trian: there is no such command")
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
def test_rows_that_are_recipes_are_trained_and_others_are_not(work, tmp_path, run_command, name):
    """All jobs are created and checked; only the training itself is left out."""
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


@pytest.mark.parametrize(("given", "beam"), [("", "4"), ("--beam-size 2", "2")])
def test_the_beam_is_the_papers_unless_another_is_given(work, tmp_path, run_command, given, beam):
    write_translations(tmp_path)
    changes = f"data.folder={tmp_path / 'wmt14'} model.dim=8 model.num_heads=2 model.num_layers=1"
    code, printed, _ = run_command(f"table ngsan.table8 {changes} {given} --out {tmp_path}/out")
    assert (code, len(work)) == (0, 2)
    assert all(jobs[-1][jobs[-1].index("--beam-size") + 1] == beam for jobs in work.values())
    assert f"beam {beam}" in printed
