"""`legenda figure` without a model: the list of figures, help, curves of scores, and invalid options."""

import json
import re
import sys
from pathlib import Path

import pytest

from legenda.errors import install_line
from legenda.report.paper_figures import FIGURES

Figure = pytest.importorskip("matplotlib.figure", reason="needs the extra figures").Figure


def _history(folder: Path, name: str, seed: int, scores: dict[int, float], **changes: object) -> Path:
    """A run folder with what training keeps of scores and settings, and no model."""
    folder.mkdir(parents=True)
    training = {"schedule": {"rate": 0.1}, "seed": seed} | changes
    (folder / "config.json").write_text(
        json.dumps({"model": {"name": name}, "data": {"seed": 0}, "training": training})
    )
    lines = [{"step": 1, "epoch": 1, "loss": 2.0}]
    lines += [{"step": 10 * e, "epoch": e, "validation": {"CIDEr-D": s, "BLEU-4": s / 10}} for e, s in scores.items()]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_without_a_name_the_figures_are_listed(run_command):
    for arguments in ((), ("--help",)):
        code, out, err = run_command("figure", *arguments)
        assert (code, err) == (0, "")
        assert out.startswith("usage: legenda figure NAME")
        for name, entry in FIGURES.items():
            assert f"  {name}" in out
            assert entry.needs in out


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_has_help(run_command, name):
    code, out, _ = run_command("figure", name, "--help")
    assert code == 0
    assert f"usage: legenda figure {name}" in out
    assert "--out" in out


def test_the_guide_lists_all_figures_and_its_example_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the example saves a figure
    page = (Path(__file__).resolve().parents[2] / "docs" / "guides" / "paper-figures.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `([a-z]+\.\d)`", page, flags=re.MULTILINE) == list(FIGURES)
    names: dict[str, object] = {}
    exec(compile(page.split("```python\n")[1].split("```")[0], "figures.md", "exec"), names)
    assert isinstance(names["figure"], Figure)
    for image in re.findall(r"\]\(\.\./images/(figure-[^)]+)\)", page):
        assert (Path(__file__).resolve().parents[2] / "docs" / "images" / image).stat().st_size < 150_000


def test_runs_that_differ_in_their_seed_are_one_curve(run_command, tmp_path):
    seeds = [_history(tmp_path / f"nsan/seed{seed}", "nsan", seed, {2: 1.0 + seed, 4: 2.0}) for seed in (0, 1)]
    plain = _history(tmp_path / "plain", "transformer", 0, {2: 1.0, 4: 1.5, 6: 1.8})
    out = tmp_path / "curves.svg"
    for runs in ((tmp_path / "nsan", plain), (*seeds, plain)):
        code, message, err = run_command(f"figure ngsan.2 {' '.join(map(str, runs))} --out {out}")
        assert (code, err) == (0, "")
        assert f"{out}: ngsan.2, scores by epoch" in message
        drawn = out.read_text(encoding="utf-8")
        assert all(f"<!-- {text} -->" in drawn for text in ("nsan (mean of 2)", "transformer", "epoch"))
    slow = _history(tmp_path / "slow", "nsan", 0, {2: 1.0}, batch_size=5)
    code, _, _ = run_command(f"figure ngsan.2 {seeds[0]} {slow} --metric BLEU-4 --out {out}")
    assert code == 0
    assert all(
        f"<!-- {name} -->" in out.read_text(encoding="utf-8") for name in ("seed0", "slow", "BLEU-4, validation")
    )
    for recipe, folder in (("scenes.nsan", seeds[0]), ("mine", slow)):
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | {"recipe": recipe}))
    code, _, _ = run_command(f"figure ngsan.2 {seeds[0]} {slow} --out {out}")
    assert code == 0
    assert all(f"<!-- {name} -->" in out.read_text(encoding="utf-8") for name in ("scenes.nsan", "mine"))


def test_invalid_curves_raise_one_sentence(run_command, tmp_path):
    whole = _history(tmp_path / "whole", "nsan", 0, {2: 1.0})
    other = _history(tmp_path / "other", "nsan", 1, {3: 1.0})
    young = _history(tmp_path / "young", "nsan", 0, {})
    (tmp_path / "none").mkdir()
    for runs, message in (
        ((tmp_path / "none",), "none has no metrics.jsonl, which training writes; name the folder of a trained run"),
        ((young,), "metrics.jsonl has no validation scores yet; train the run until its first validation"),
        ((whole, "--metric", "CIDEr"), "holds no score 'CIDEr'; did you mean CIDEr-D?"),
        ((whole, other), "the runs of nsan have no validated epoch in common"),
        ((whole, whole), "one run folder is named twice"),
        ((), "name at least one model, such as photo"),
    ):
        code, out, err = run_command("figure ngsan.2", *map(str, runs), "--out", str(tmp_path / "a.png"))
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert message in err
    assert not (tmp_path / "a.png").exists()


def test_errors_before_any_run_is_loaded(run_command, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    run = _history(tmp_path / "run", "nsan", 0, {2: 1.0})
    for line, message in (
        ("ngsan.5", "there is no figure 'ngsan.5'; did you mean ngsan."),
        ("zzz", f"there is no figure 'zzz'; choose from {', '.join(sorted(FIGURES))}"),
        ("--out a.png", "the figure comes first, as in legenda figure ngsan.2; legenda figure lists them"),
        (f"ngsan.2 {run} --metrik x", "there is no option --metrik; did you mean --metric?"),
        (f"ngsan.2 {run} --out a.jpg", "a.jpg has no supported figure format; use one of .png, .svg, .pdf"),
        (f"ngsan.2 {run} --out {tmp_path}/file/a.png", "a.png could not be written"),
    ):
        code, out, err = run_command(f"figure {line}")
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert message in err
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, _, err = run_command(f"figure ngsan.2 {run} --out {tmp_path}/a.png")
    assert code == 2
    assert err == f"legenda figure: matplotlib is missing; {install_line('figures')}\n"
