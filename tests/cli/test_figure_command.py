"""`legenda figure` on runs with random weights: scenes, image files, and invalid input."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import legenda
from legenda.data.captions import ScenesData
from legenda.data.scenes import draw_scene, find_things, make_scene
from legenda.evaluation.runs import describe_data
from legenda.report.paper_figures.mdsan import read_cells
from legenda.report.paper_figures.ngsan import surface_ratios

pytest.importorskip("matplotlib", reason="needs the extra figures")
pytestmark = pytest.mark.usefixtures("one_thread")

SCENES = ScenesData(train=40, validation=2, test=3)
GRID = """
import numpy as np

def extract(images):
    edges = np.arange({0}) / {0}
    top, left = (corner.ravel() for corner in np.meshgrid(edges, edges, indexing="ij"))
    boxes = np.stack([left, top, left + 1 / {0}, top + 1 / {0}], axis=1)
    cells = [np.asarray(image.resize(({0}, {0}))).reshape(-1, 3) / 255 for image in images]
    return [(cell, boxes if {1} else None) for cell in cells]
"""


@pytest.fixture(scope="module")
def make_run(tmp_path_factory, sized) -> Callable[..., Path]:
    """A run folder with a model of random weights, which has two words for captions and an end."""
    opened = SCENES.open(lambda _: None)

    def make(name: str, folder: str = "", *, layers: int = 1, options: dict | None = None, **sections: object) -> Path:
        torch.manual_seed(len(name))
        small = sized(name, dim=8, num_heads=2, num_layers=layers, ff_dim=8, geometry_dim=8, dropout=0.0)
        settings = legenda.models.describe_model(name).settings
        small = {key: value for key, value in small.items() if key not in settings}
        width = sections.pop("feature_dim", opened.feature_dim)
        words = len(opened.vocabulary)
        model = legenda.create_model(name, vocab_size=words, feature_dim=width, **small, **(options or {}))
        model.vocabulary = opened.vocabulary
        path = tmp_path_factory.mktemp("runs") / (folder or name)
        config = {"recipe": f"scenes.{name}", "data": describe_data(SCENES, path), "extractor": "scenes"}
        return model.eval().save(path, **(config | sections))

    return make


@pytest.fixture(scope="module")
def run_of(make_run) -> Callable[[str], Path]:
    """The run of a named model, made once."""
    made: dict[str, Path] = {}
    return lambda name: made.setdefault(name, made.get(name) or make_run(name))


def _lines_of(path: Path) -> str:
    """Return an SVG as text: glyphs are drawn as paths, and each text is also a comment."""
    return path.read_text(encoding="utf-8")


def test_geometric_weights_have_a_row_for_each_run_and_head(run_command, make_run, run_of, tmp_path):
    out = tmp_path / "phi.svg"
    content = make_run("gsan", "content", options={"geometry": "content"})
    code, _, err = run_command(f"figure ngsan.3 {content} {run_of('ngsan')} --heads 0 1 --count 2 --out {out}")
    assert (code, err) == (0, "")
    drawn = _lines_of(out)
    assert "<!-- content, gsan, layer 1, head 1 -->" in drawn
    assert "<!-- ngsan, layer 1, head 0, mean over the regions of 2 images -->" in drawn
    assert all(f"<!-- Δw = Δh = {value} -->" in drawn for value in ("0.5", "1", "2"))
    deep = make_run("gsan", "deep", layers=2, options={"geometry": "content", "geometry_per_layer": True})
    code, _, err = run_command(f"figure ngsan.4 {deep} --layer 2 --out {out}")
    assert (code, err) == (0, "")
    drawn = _lines_of(out)
    assert "<!-- deep, gsan, layer 2, mean of 2 heads -->" in drawn
    assert "<!-- Δx = Δy = 2 -->" in drawn
    for line, message in (
        (
            f"ngsan.3 {deep}",
            "deep has 2 layers, and the paper's figure is of a model with one; choose one with --layer",
        ),
        (f"ngsan.3 {deep} --layer 3", "gsan has no layer 3; choose from 1 to 2"),
        (f"ngsan.4 {content} --heads 2", "content has no head 2; choose from 0 to 1"),
        (f"ngsan.4 {content} --count 0", "--count must be at least 1, not 0"),
        (f"ngsan.3 {run_of('transformer')}", "transformer has no geometric weights"),
    ):
        code, _, err = run_command(f"figure {line} --out {tmp_path}/b.png")
        assert (code, err.count("\n")) == (2, 1)
        assert message in err
    assert not (tmp_path / "b.png").exists()


def test_ratios_vary_along_the_x_axis_first():
    grid = np.array([0.1, 1.0, 2.0])
    ratios = surface_ratios("position", grid, 0.5)
    assert ratios.shape == (9, 4)
    np.testing.assert_allclose(ratios[[0, 1, 3]], [[0.1, 0.1, 0.5, 0.5], [1, 0.1, 0.5, 0.5], [0.1, 1, 0.5, 0.5]])
    np.testing.assert_allclose(surface_ratios("size", grid, 2.0)[1], [2, 2, 1, 0.1])


@pytest.mark.parametrize(
    ("name", "models"),
    [
        ("aoanet.8", ("aoanet_base", "aoanet_aoa")),
        ("xlan.5", ("updown", "xlan")),
        ("xlan.5", ("xtransformer",)),
        ("mdsan.7", ("transformer", "mdsan")),
        ("mdsan.4", ("transformer", "mdsan")),
    ],
)
def test_scenes_need_no_image_files(run_command, run_of, tmp_path, name, models):
    out = tmp_path / "words.svg"
    runs = " ".join(str(run_of(model)) for model in models)
    code, _, err = run_command(f"figure {name} {runs} --image-ids test-0-000001 --beam-size 2 --out {out}")
    assert (code, err) == (0, "")
    drawn = _lines_of(out)
    assert "<!-- test-0-000001 -->" in drawn
    for letter, model in zip("abc", models, strict=False):
        assert f"<!-- ({letter}) {model}" in drawn
    assert "test-0-000000" not in drawn


def test_image_files_are_titled_with_their_names(run_command, run_of, tmp_path):
    for number in range(2):
        draw_scene(make_scene("train", number, 3)).save(tmp_path / f"mine{number}.png")
    out = tmp_path / "out.svg"
    code, _, err = run_command(f"figure mdsan.7 {run_of('mdsan')} --image-files {tmp_path}/*.png --out {out}")
    assert (code, err) == (0, "")
    assert all(f"<!-- mine{number}.png -->" in _lines_of(out) for number in range(2))


def test_one_region_of_each_head(run_command, run_of, tmp_path):
    out = tmp_path / "cell.svg"
    code, _, err = run_command(f"figure mdsan.4 {run_of('mdsan')} --branch 2 --cell 1 --out {out}")
    assert (code, err) == (0, "")
    drawn = _lines_of(out)
    assert "query region 1 -->" in drawn
    assert "<!-- (a) mdsan, branch 2:" in drawn
    assert "branch 1" not in drawn
    for line, message in (
        ("--cell 9", "mdsan has no region 9 in test-0-000000; choose from 1 to "),
        ("--branch 4", "mdsan has no branch 4 in layer 1; choose from 1 to 3"),
        ("--layer 2", "mdsan has no layer 2; choose from 1 to 1"),
    ):
        code, _, err = run_command(f"figure mdsan.4 {run_of('mdsan')} {line} --out {tmp_path}/b.png")
        assert (code, err.count("\n")) == (2, 1)
        assert message in err


def test_matrices_of_untrained_models(run_command, tmp_path):
    out = tmp_path / "z.svg"
    code, _, err = run_command(f"figure mdsan.3 --out {out}")
    assert (code, err) == (0, "")
    drawn = _lines_of(out)
    for name in ("mdsan_abspe", "mdsan_relpe", "mdsan_dsa"):
        assert f"({name}, not trained, seed 0) -->" in drawn
    assert drawn.count("<!-- head 7 -->") == 2
    assert "<!-- The regions are the 49 cells of a drawn scene." in drawn
    before = out.read_bytes()
    for split, same in (("test", True), ("train", False)):
        assert run_command(f"figure mdsan.3 --split {split} --out {out}")[0] == 0
        assert (out.read_bytes() == before) == same
    draw_scene(make_scene("train", 0, 0)).save(tmp_path / "mine.png")
    code, _, _ = run_command(f"figure mdsan.3 --image-files {tmp_path}/mine.png --seed 1 --layer 3 --out {out}")
    assert code == 0
    assert "<!-- The regions are the 49 cells of mine.png." in _lines_of(out)
    for line, message in (
        (
            "--extractor scenes",
            "--extractor is for runs, and none is named; untrained models read the cells of an image",
        ),
        ("--layer 4", "mdsan_abspe has no layer 4; choose from 1 to 3"),
        (
            f"--split val --image-files {tmp_path}/mine.png",
            "--split is for drawn scenes; leave it out with --image-files",
        ),
    ):
        code, _, err = run_command(f"figure mdsan.3 {line} --out {tmp_path}/b.png")
        assert (code, err.count("\n")) == (2, 1)
        assert message in err


def test_trained_models_of_scenes_read_grid_cells(run_command, run_of, tmp_path):
    out = tmp_path / "z.svg"
    runs = f"{run_of('mdsan_relpe')} {run_of('mdsan')}"
    code, _, err = run_command(f"figure mdsan.3 {runs} --branch 1 --out {out}")
    assert (code, err) == (0, "")
    drawn = _lines_of(out)
    assert "<!-- (b) mdsan, branch 1 -->" in drawn
    assert "<!-- 49 regions of test-0-000000, its grid cells." in drawn
    for line, message in (
        (f"{run_of('transformer')}", "transformer has no positions in its encoder"),
        (f"{runs} --seed 1", "--seed is for untrained models"),
        (f"{runs} --split val --image-files a.png", "--split selects images of the runs' data; leave it out with"),
        (f"{runs} --image-ids test-0-000000 test-0-000001", "the figure shows one image, not 2; name one"),
    ):
        code, _, err = run_command(f"figure mdsan.3 {line} --out {tmp_path}/b.png")
        assert (code, err.count("\n")) == (2, 1)
        assert message in err


def test_the_encoder_adds_boxes_to_grid_features(run_command, make_run, tmp_path):
    (tmp_path / "seven.py").write_text(GRID.format(7, False))
    Image.effect_noise((90, 60), 80).convert("RGB").save(tmp_path / "photo.png")
    given = f"--image-files {tmp_path}/photo.png --extractor {tmp_path}/seven.py --out {tmp_path}/out.svg"
    run = make_run("mdsan_dsa", "grid", feature_dim=3, imported={"kind": "mdsan"})
    for name in ("mdsan.3", "mdsan.4", "mdsan.7"):
        code, _, err = run_command(f"figure {name} {run} {given}")
        assert (code, err) == (0, "")
        assert "grid, mdsan_dsa" in _lines_of(tmp_path / "out.svg")
    plain = make_run("transformer", "without_boxes", feature_dim=3, imported={"kind": "transformer"})
    code, _, err = run_command(f"figure mdsan.4 {plain} {given}")
    assert (code, err.count("\n")) == (2, 1)
    assert f"{plain} reads features without boxes from the image files, so its attention cannot be drawn" in err
    for line, message in (
        ("", "was imported without data; name some with --annotations and --features"),
        (f"--image-files {tmp_path}/photo.png", "does not name the extractor of the features"),
        (f"{given} --image-ids a", "--image-ids selects images of the runs' data; leave it out with --image-files"),
    ):
        code, _, err = run_command(f"figure mdsan.4 {run} {line}")
        assert (code, err.count("\n")) == (2, 1)
        assert message in err


def test_unsuitable_runs_are_named_with_a_remedy(run_command, run_of, tmp_path):
    plain, base, gated = run_of("transformer"), run_of("aoanet_base"), run_of("aoanet_aoa")
    for line, message in (
        (f"aoanet.8 {plain} {gated}", f"{plain} holds transformer, whose decoder is not of AoANet's family"),
        (
            f"aoanet.8 {gated}",
            "the figure needs a run without AoA in its decoder too; name both aoanet_base and aoanet_aoa",
        ),
        (f"aoanet.8 {base}", "the figure needs a run with AoA in its decoder too"),
        (f"xlan.5 {plain}", f"{plain} holds transformer, which has no X-Linear attention in its decoder"),
        (f"mdsan.7 {plain}", f"{plain} holds transformer, which is not of MD-SAN's family; name a run of mdsan too"),
        (f"mdsan.4 {run_of('xlan')}", "xlan has no multi-head self-attention in its encoder"),
        ("xlan.5", "name at least one model, such as photo"),
        ("xlan.5 nowhere", "nowhere is not a folder with a model"),
        (
            f"mdsan.7 {run_of('mdsan')} --image-ids test-0-00001",
            "there is no image test-0-00001 in test; did you mean test-0-0",
        ),
        (f"mdsan.7 {run_of('mdsan')} --image-ids zzz", "choose from test-0-000000"),
        (f"mdsan.7 {run_of('mdsan')} --count 0", "--count must be at least 1, not 0"),
        (
            f"mdsan.7 {run_of('mdsan')} --extractor scenes",
            "--extractor is for image files; name some with --image-files",
        ),
        (f"mdsan.7 {run_of('mdsan')} --image-files gone.png", "gone.png does not exist"),
    ):
        code, out, err = run_command(f"figure {line} --out {tmp_path}/b.png")
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert message in err
    assert list(tmp_path.iterdir()) == []


def test_runs_with_different_images_are_not_drawn_together(run_command, make_run, run_of, tmp_path):
    other = make_run("mdsan", "other", data=describe_data(ScenesData(train=40, validation=2, test=2), Path()))
    code, _, err = run_command(f"figure mdsan.7 {run_of('mdsan')} {other} --out {tmp_path}/b.png")
    assert (code, err.count("\n")) == (2, 1)
    assert f"{other} has other images in test than {run_of('mdsan')}; draw runs of the same data together" in err


def test_the_cells_of_a_scene_hold_its_pixels():
    image = draw_scene(make_scene("test", 0, 0))
    cells = read_cells(image, 7)
    assert cells.features.shape == (1, 49, find_things(image)[0].shape[1])
    small = np.asarray(image.resize((56, 56), Image.Resampling.BOX), dtype=float)
    np.testing.assert_allclose(
        cells.features[0, 7 * 2 + 3].reshape(8, 8, 3).numpy(), (small[16:24, 24:32] - 240) / 128, atol=1e-6
    )
    np.testing.assert_allclose(cells.boxes[0, 7 * 2 + 3].numpy(), np.array([3, 2, 4, 3]) / 7, atol=1e-6)
