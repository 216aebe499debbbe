"""The figures of the papers on runs with random weights, and their parts from plain data."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="needs the extra figures")

from drawing import Curve, draw_curves
from ngsan import _read

from legenda.data.captions import ScenesData
from legenda.papers import get_recipe

pytestmark = pytest.mark.usefixtures("one_thread")

SCENES = ScenesData(train=40, validation=2, test=3)


@pytest.fixture(scope="module")
def run_of(make_run):
    """The run of a model, or of the model of a row of a paper, made once."""
    made: dict[str, Path] = {}

    def run(name: str) -> Path:
        if name not in made:
            model, options = (get_recipe(name).model, get_recipe(name).model_overrides) if "." in name else (name, {})
            made[name] = make_run(model, SCENES, name, options)
        return made[name]

    return run


def test_runs_that_differ_in_the_seed_alone_are_averaged(make_run):
    seeds = [
        make_run("transformer", SCENES, training={"epochs": 1, "seed": seed}, environment={"date": str(seed)})
        for seed in (0, 1)
    ]
    for seed in seeds:
        (seed / "metrics.jsonl").write_text('{"step": 1, "epoch": 1, "validation": {"CIDEr-D": 0.5}}\n')
    assert len({_read("a", seed, "CIDEr-D").settings for seed in seeds}) == 1


def test_the_figures_are_listed(run_script):
    code, out, _ = run_script("figures/draw.py")
    assert code == 0
    assert all(name in out for name in ("ngsan 2", "aoanet 8", "xlan 5", "mdsan 7"))


@pytest.mark.parametrize(
    ("name", "models", "options"),
    [
        ("ngsan 3", ("ngsan",), ("--heads", "0", "1", "--count", "2")),
        ("ngsan 4", ("gsan",), ("--count", "2")),
        pytest.param("aoanet 8", ("aoanet.table4.base", "aoanet.table4.aoa"), (), marks=pytest.mark.slow),
        pytest.param("xlan 5", ("updown", "xlan"), (), marks=pytest.mark.slow),
        ("mdsan 3", ("mdsan.table7.dsa", "mdsan"), ()),
        pytest.param("mdsan 3", (), (), marks=pytest.mark.slow),
        pytest.param("mdsan 4", ("transformer", "mdsan"), (), marks=pytest.mark.slow),
        ("mdsan 4", ("mdsan",), ("--branch", "2", "--cell", "1")),
        pytest.param("mdsan 7", ("transformer", "mdsan"), (), marks=pytest.mark.slow),
    ],
)
def test_scenes_need_no_image_files(run_script, run_of, tmp_path, name, models, options):
    out = tmp_path / "figure.svg"
    code, _, err = run_script("figures/draw.py", *name.split(), *map(run_of, models), *options, "--out", out)
    assert (code, err) == (0, "")
    drawn = out.read_text(encoding="utf-8")
    for model in models:
        assert model in drawn


@pytest.mark.parametrize(
    ("name", "models", "options"),
    [
        ("ngsan 5", (), ()),
        ("ngsan 3", ("transformer",), ()),
        ("aoanet 8", ("aoanet.table4.aoa",), ()),
        ("xlan 5", ("transformer",), ()),
        ("mdsan 4", ("xlan",), ()),
        ("mdsan 4", ("mdsan",), ("--cell", "99")),
        ("mdsan 7", ("mdsan",), ("--count", "0")),
        ("mdsan 7", ("mdsan",), ("--out", "a.jpg")),
    ],
)
def test_unsuitable_runs_and_options_are_one_sentence(run_script, run_of, tmp_path, name, models, options):
    arguments = (*map(run_of, models), "--out", tmp_path / "b.png", *options)
    code, out, err = run_script("figures/draw.py", *name.split(), *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert list(tmp_path.iterdir()) == []


def test_a_curve_is_the_mean_of_its_runs_within_their_band():
    figure = draw_curves([Curve("nsan", [1, 2], np.array([[1.0, 2.0], [3.0, 2.5]]))], score="CIDEr-D", title="t")
    (axes,) = figure.axes
    np.testing.assert_allclose(axes.lines[0].get_xydata(), [[1, 2.0], [2, 2.25]])
    corners = axes.collections[0].get_paths()[0].vertices
    assert (corners[:, 1].min(), corners[:, 1].max()) == (1.0, 3.0)
