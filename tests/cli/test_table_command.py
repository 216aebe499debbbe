"""`legenda table`: rows trained on a few scenes, killed, resumed, failing, and compared with the paper's scores."""

import contextlib
import io
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from legenda.cli.main import main
from legenda.papers import PaperRow, get_table

pytestmark = pytest.mark.usefixtures("one_thread")

TABLE = "table ngsan.table2 --scenes model.dim=8 model.num_heads=2 model.num_layers=1 model.ff_dim=8"
FEW = "data.train=12 data.validation=3 data.test=18"
SHORT = "training.epochs=1 training.batch_size=6 training.eval_beam_size=1"
ROWS = "--rows none in --beam-size 1"
NONE, IN, BN = (f"scenes.ngsan.{name}/seed0" for name in ("table1.transformer_2", "table1.nsan_2", "table2.bn"))
"""The runs of the rows none, in and bn, which the tables share."""
TIMEOUT = 600
"""Seconds; generous, for a busy machine."""


@pytest.fixture(scope="module")
def killed(tmp_path_factory) -> Path:
    """The folder of a table that was killed after one of its two rows was evaluated."""
    out = tmp_path_factory.mktemp("table") / "out"
    line = f"{TABLE} {FEW} {SHORT} {ROWS} --estimate none --out {out}"
    table = subprocess.Popen(
        [sys.executable, "-m", "legenda", *line.split()], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    end = time.monotonic() + TIMEOUT
    while not (out / NONE / "evaluation_test.json").exists() and time.monotonic() < end:
        time.sleep(0.02)
    table.send_signal(signal.SIGKILL)
    assert table.wait() == -signal.SIGKILL
    return out


@pytest.fixture(autouse=True, scope="module")
def estimated() -> Iterator[list[list[str]]]:
    """The arguments of calls whose hours are estimated, which is left out here."""
    calls: list[list[str]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("legenda.cli.table.print_estimate_of", calls.append)
        yield calls


@dataclass(frozen=True)
class Resumed:
    """A table's folder after a second call with its outputs; trained: when the first row was trained."""

    out: Path
    trained: float
    stdout: str
    stderr: str


@pytest.fixture(scope="module")
def resumed(killed) -> Resumed:
    """The folder of the killed table after the same command was called again."""
    trained = (killed / NONE / "model.safetensors").stat().st_mtime
    assert not (killed / IN / "evaluation_test.json").exists()
    stdout, stderr = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
        main(f"{TABLE} {FEW} {SHORT} {ROWS} --out {killed}".split())
    return Resumed(killed, trained, stdout.getvalue(), stderr.getvalue())


def test_a_killed_table_resumes_and_trains_no_row_twice(resumed):
    out = resumed.out
    assert (out / NONE / "model.safetensors").stat().st_mtime == resumed.trained
    assert f"{NONE}  " not in resumed.stderr
    assert f"{IN}  nsan  epoch 1" in resumed.stderr
    assert json.loads((out / IN / "config.json").read_text())["recipe"] == "scenes.ngsan.table1.nsan_2"


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
        ("table ngsan.table2 --scenes --seeds 2 training.seed=3", "--seeds sets the seed of every run; leave out"),
        ("table ngsan.table2 --scenes training.epoch=3", "row none: training has no option 'epoch'"),
        ("table ngsan.table9 --scenes", "vqa2.online.mcan_small has no small model on the embedded scenes, as"),
        ("table ngsan.table5 DATA", "COCO's server scores ngsan.table5; name features of test2014 with --test-feat"),
        ("table ngsan.table2 --rows in", "dataset_coco.json does not exist; name the data with data.annotations= and"),
    ],
)
def test_an_error_is_one_sentence_and_nothing_is_written(tmp_path, monkeypatch, run_command, line, message):
    monkeypatch.chdir(tmp_path)
    code, _, err = run_command(line.replace("DATA", f"data.annotations={__file__} data.features={__file__}"))
    assert code == 2
    assert err.count("\n") == 1
    assert message in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"metrics": "auto"},
        {"beam_size": 2},
        {"data": {"kind": "karpathy"}},
        {"generation_config": None},
        {"scores": None},
    ],
)
def test_an_evaluation_with_other_settings_is_repeated(resumed, run_command, monkeypatch, tmp_path, change):
    """As after `legenda evaluate` with other options."""
    out = tmp_path / "out"
    shutil.copytree(resumed.out, out)
    path = out / NONE / "evaluation_test.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    work: dict[str, list[list[str]]] = {}
    monkeypatch.setattr("legenda.cli.table.run_parallel", lambda jobs, _: work.update(jobs) or {})
    assert run_command(f"{TABLE} {FEW} {SHORT} {ROWS} --out {out}")[0] == 0
    evaluation = ["evaluate", f"{out}/{NONE}", "--split", "test", "--beam-size", "1", "--metrics", "fast"]
    assert work == ({NONE: [evaluation]} if change else {})


def test_another_table_uses_the_runs_and_ensembles_train_their_members(resumed, monkeypatch, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(resumed.out, out)
    table = replace(
        get_table("ngsan.table6"),
        name="both",
        rows=(PaperRow("one", "coco.transformer", (None,) * 5), PaperRow("two", "coco.nsan", (None,) * 5, members=2)),
    )
    monkeypatch.setattr("legenda.cli.table.get_table", lambda _: table)
    line = f"table both --scenes {TABLE.partition('--scenes')[2]} {FEW} {SHORT} --beam-size 1 --out {out}"
    main(line.split())
    members = [out / "scenes.ngsan.table1.nsan_2" / f"seed{seed}" for seed in (0, 1)]
    assert json.loads((members[1] / "config.json").read_text())["stages"][0]["seed"] == 1
    assert (members[0] / "model.safetensors").stat().st_mtime == (out / IN / "model.safetensors").stat().st_mtime
    evaluation = json.loads((members[1] / "evaluation_test_ensemble.json").read_text())
    assert evaluation["runs"] == [str(member) for member in reversed(members)]
    text = (out / "both.md").read_text()
    for score in (evaluation["scores"], json.loads((out / NONE / "evaluation_test.json").read_text())["scores"]):
        assert f"| {100 * score['BLEU-4']:.1f} |" in text
    work: dict[str, list[list[str]]] = {}
    monkeypatch.setattr("legenda.cli.table.run_parallel", lambda jobs, _: work.update(jobs) or {})
    main(line.split())
    assert work == {}
