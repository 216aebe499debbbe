"""The figures of the papers on runs with random weights, and their parts from plain data."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("matplotlib", reason="needs the extra figures")

from drawing import (
    CaptionRow,
    Curve,
    SurfaceRow,
    WeightMatrices,
    attention_heatmap,
    draw_curves,
    draw_surface_plots,
    matrix_rows,
    save_figure,
    word_rows,
)
from mdsan import read_cells
from ngsan import surface_ratios
from PIL import Image

from legenda.data.captions import ScenesData
from legenda.data.scenes import draw_scene, find_things, make_scene
from legenda.errors import LegendaError
from legenda.papers import get_recipe

pytestmark = pytest.mark.usefixtures("one_thread")

SCENES = ScenesData(train=40, validation=2, test=3)
BOXES = np.array([[0.0, 0.0, 0.5, 1.0], [0.5, 0.0, 1.0, 1.0]])


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


def history(folder: Path, seed: int, scores: dict[int, float]) -> Path:
    """Write what training keeps of scores and settings, without a model."""
    folder.mkdir(parents=True)
    training = {"schedule": {"rate": 0.1}, "seed": seed}
    (folder / "config.json").write_text(json.dumps({"model": {"name": "nsan"}, "training": training}))
    lines = [{"step": 10 * e, "epoch": e, "validation": {"CIDEr-D": score}} for e, score in scores.items()]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_the_figures_are_listed(run_script):
    code, out, _ = run_script("figures/draw.py")
    assert code == 0
    assert all(name in out for name in ("ngsan 2", "aoanet 8", "xlan 5", "mdsan 7"))


def test_runs_that_differ_in_their_seed_are_one_curve(run_script, tmp_path):
    for seed in (0, 1):
        history(tmp_path / f"nsan/seed{seed}", seed, {2: 1.0 + seed, 4: 2.0})
    out = tmp_path / "curves.svg"
    code, _, err = run_script("figures/draw.py", "ngsan", "2", tmp_path / "nsan", "--out", out)
    assert (code, err) == (0, "")
    assert "<!-- nsan (mean of 2) -->" in out.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "models", "options"),
    [
        ("ngsan 3", ("ngsan",), ("--heads", "0", "1", "--count", "2")),
        ("ngsan 4", ("gsan",), ("--count", "2")),
        ("aoanet 8", ("aoanet.table4.base", "aoanet.table4.aoa"), ()),
        ("xlan 5", ("updown", "xlan"), ()),
        ("mdsan 3", ("mdsan.table7.dsa", "mdsan"), ()),
        ("mdsan 3", (), ()),
        ("mdsan 4", ("transformer", "mdsan"), ()),
        ("mdsan 4", ("mdsan",), ("--branch", "2", "--cell", "1")),
        ("mdsan 7", ("transformer", "mdsan"), ()),
    ],
)
def test_scenes_need_no_image_files(run_script, run_of, tmp_path, name, models, options):
    out = tmp_path / "figure.svg"
    code, _, err = run_script("figures/draw.py", *name.split(), *map(run_of, models), *options, "--out", out)
    assert (code, err) == (0, "")
    drawn = out.read_text(encoding="utf-8")
    for model in models:
        assert model in drawn


def test_image_files_are_titled_with_their_names(run_script, run_of, tmp_path):
    draw_scene(make_scene("train", 0, 3)).save(tmp_path / "mine.png")
    out = tmp_path / "out.svg"
    images = ("--image-files", tmp_path / "mine.png")
    code, _, err = run_script("figures/draw.py", "mdsan", "7", run_of("mdsan"), *images, "--out", out)
    assert (code, err) == (0, "")
    assert "<!-- mine.png -->" in out.read_text(encoding="utf-8")


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


def test_ratios_vary_along_the_x_axis_first():
    ratios = surface_ratios("position", np.array([0.1, 1.0, 2.0]), 0.5)
    np.testing.assert_allclose(ratios[[0, 1, 3]], [[0.1, 0.1, 0.5, 0.5], [1, 0.1, 0.5, 0.5], [0.1, 1, 0.5, 0.5]])


def test_the_cells_of_a_scene_hold_its_pixels():
    image = draw_scene(make_scene("test", 0, 0))
    cells = read_cells(image, 7)
    assert cells.features.shape == (1, 49, find_things(image)[0].shape[1])
    small = np.asarray(image.resize((56, 56), Image.Resampling.BOX), dtype=float)
    patch = torch.from_numpy((small[16:24, 24:32] - 240) / 128).float()
    torch.testing.assert_close(cells.features[0, 7 * 2 + 3].reshape(8, 8, 3), patch, atol=1e-6, rtol=0)


def test_a_curve_is_the_mean_of_its_runs_within_their_band():
    figure = draw_curves([Curve("nsan", [1, 2], np.array([[1.0, 2.0], [3.0, 2.5]]))], score="CIDEr-D", title="t")
    (axes,) = figure.axes
    np.testing.assert_allclose(axes.lines[0].get_xydata(), [[1, 2.0], [2, 2.25]])
    corners = axes.collections[0].get_paths()[0].vertices
    assert (corners[:, 1].min(), corners[:, 1].max()) == (1.0, 3.0)


def test_heat_adds_up_where_boxes_overlap_and_fades_outside():
    boxes = np.array([[0.0, 0.0, 0.6, 1.0], [0.4, 0.0, 1.0, 1.0]])
    middle = attention_heatmap(boxes, np.array([0.5, 0.25]), (200, 40))[20]
    assert middle[[100, 20, 180]] == pytest.approx([1.0, 0.5 / 0.75, 0.25 / 0.75], abs=0.02)
    assert not attention_heatmap(boxes, np.zeros(2), (20, 10)).any()


def test_data_of_wrong_shapes_are_refused():
    with pytest.raises(LegendaError, match="nsan"):
        draw_curves([Curve("nsan", [1, 2, 3], np.array([1.0, 2.0]))], score="s", title="t")
    row, axes = SurfaceRow("gsan", np.full((1, 5, 5), np.nan)), ("x", "y")
    with pytest.raises(LegendaError, match="finite"):
        draw_surface_plots([row], np.linspace(0, 3, 5), axes_names=axes, fixed=["f"], measured="m", title="t")
    with pytest.raises(LegendaError, match="square"):
        matrix_rows([WeightMatrices("mdsan", np.ones((2, 2, 3)), ["head 0", "head 1"])])
    with pytest.raises(LegendaError, match="xlan"):
        word_rows(Image.new("RGB", (8, 6)), [CaptionRow("xlan", ("a",), np.ones((2, 2)), BOXES)], "heat")


def test_the_same_data_make_the_same_file(tmp_path):
    for suffix in (".png", ".svg", ".pdf"):
        files = [
            save_figure(
                draw_curves([Curve("nsan", [1, 2], np.array([[1.0, 2.0]]))], score="s", title="t"),
                tmp_path / f"{name}{suffix}",
            ).read_bytes()
            for name in "ab"
        ]
        assert files[0] == files[1]
