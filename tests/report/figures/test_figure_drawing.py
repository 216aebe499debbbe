"""Figures from plain data: what stands in them, and their files."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image

from legenda.errors import LegendaError
from legenda.report.figures import (
    Block,
    CaptionRow,
    Curve,
    SurfaceRow,
    WeightMatrices,
    check_target,
    draw_curves,
    draw_image_grid,
    draw_surface_plots,
    matrix_rows,
    save_figure,
    word_rows,
)
from legenda.report.figures.canvas import COLORS
from legenda.report.figures.image_grid import MAX_LABEL_LENGTH
from legenda.report.figures.words import Style, attention_heatmap

if TYPE_CHECKING:
    from matplotlib.figure import Figure

pytest.importorskip("matplotlib", reason="needs the extra figures")

PICTURE = Image.new("RGB", (80, 60), "white")
BOXES = np.array([[0.0, 0.0, 0.5, 1.0], [0.5, 0.0, 1.0, 1.0]])
ATTENTION = np.array([[0.9, 0.1], [0.25, 0.75]])


def _texts(figure: Figure) -> list[str]:
    """All that can be read in a figure."""
    inside = [text.get_text() for axes in figure.axes for text in (*axes.texts, axes.title)]
    outside = [text.get_text() for part in (figure, *figure.subfigs) for text in part.texts]
    return [text for text in [*outside, *inside] if text]


def _words(style: Style = "heat", *, joined: bool = True, **changes: object) -> Block:
    fields = {"name": "xlan", "words": ("a", "dog"), "attention": ATTENTION, "boxes": BOXES} | changes
    return Block("dog.jpg", word_rows(PICTURE, [CaptionRow(**fields)], style, joined=joined))


def test_a_curve_is_the_mean_of_its_runs_within_their_band():
    curves = [
        Curve("nsan", [1, 2], np.array([[1.0, 2.0], [3.0, 2.5]])),
        Curve("transformer", [1, 3], np.array([[0.5, 1.5]])),
    ]
    figure = draw_curves(curves, score="CIDEr-D", title="by epoch")
    (axes,) = figure.axes
    mean, single = axes.lines
    np.testing.assert_allclose(mean.get_xydata(), [[1, 2.0], [2, 2.25]])
    np.testing.assert_allclose(single.get_xydata(), [[1, 0.5], [3, 1.5]])
    (band,) = axes.collections  # one run has none
    corners = band.get_paths()[0].vertices
    assert (corners[:, 1].min(), corners[:, 1].max()) == (1.0, 3.0)
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["nsan (mean of 2)", "transformer"]
    assert mean.get_color() != single.get_color()
    assert mean.get_linestyle() != single.get_linestyle()
    assert "band: lowest to highest run" in _texts(figure)


def test_a_curve_needs_a_value_for_each_epoch():
    with pytest.raises(LegendaError, match=r"nsan needs values \(runs, 3 epochs\), not \(2,\)"):
        draw_curves([Curve("nsan", [1, 2, 3], np.array([1.0, 2.0]))], score="s", title="t")


def test_colors_are_distinguishable_in_gray():
    """Their lightness differs, and so do the colors that the commonest color-blindness leaves."""
    channels = np.array([[int(color[i : i + 2], 16) for i in (1, 3, 5)] for color in COLORS]) / 255
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    deuteranopia = np.array([[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]])  # Machado, 2009
    seen = linear @ deuteranopia.T
    apart = np.linalg.norm(seen[:, None] - seen[None], axis=-1) + np.eye(len(seen))
    assert apart.min() > 0.1


def _surfaces(values: np.ndarray) -> Figure:
    return draw_surface_plots(
        [SurfaceRow("gsan, mean of 4 heads", values)],
        np.linspace(0, 3, 5),
        axes_names=("dx", "dy"),
        fixed=["dw = 1", "dw = 2"],
        measured="phi",
        title="Figure 3",
    )


def test_surfaces_share_a_scale_and_say_what_is_fixed():
    values = np.linspace(0, 100, 50).reshape(2, 5, 5)
    figure = _surfaces(values)
    first, second, bar = figure.axes
    assert set(_texts(figure)) >= {"Figure 3", "gsan, mean of 4 heads", "dw = 1", "dw = 2", "phi"}
    assert (first.get_xlabel(), first.get_ylabel(), second.get_ylabel()) == ("dx", "dy", "")
    limits = [axes.collections[0].get_clim() for axes in (first, second)]
    assert limits[0] == limits[1] == tuple(np.percentile(values, (1, 99)))
    np.testing.assert_array_equal(second.collections[0].get_array().reshape(5, 5), values[1])
    assert bar.get_title() == "phi"


def test_a_constant_surface_is_drawn_and_an_invalid_one_raises():
    low, high = _surfaces(np.ones((2, 5, 5))).axes[0].collections[0].get_clim()
    assert (low, high) == (0.5, 1.5)
    for wrong in (np.ones((2, 5, 4)), np.full((2, 5, 5), np.nan)):
        with pytest.raises(LegendaError, match="needs finite values"):
            _surfaces(wrong)


@pytest.mark.parametrize("style", ["regions", "heat"])
def test_each_word_has_a_tile_below_the_sentence(style):
    figure = draw_image_grid([_words(style, remark="true")], title="Figure 5", footnote="what it is")
    texts = _texts(figure)
    assert texts[:4] == ["Figure 5", "dog.jpg", "(a) xlan: a dog (true)", "what it is"]
    assert [axes.texts[0].get_text() for axes in figure.axes] == ["image", "a", "dog"]
    whole, first, second = (axes.images[0].get_array() for axes in figure.axes)
    assert (np.asarray(whole) == 255).all()
    left, right = (
        np.asarray(first[:, half], dtype=float).mean(axis=(0, 1)) for half in (slice(0, 60), slice(-60, None))
    )
    if style == "regions":
        assert left.mean() > right.mean() + 60  # regions of small attention are dark
        assert [axes.texts[1].get_text() for axes in figure.axes] == ["", "", ""]
    else:
        assert left[0] - left[2] > right[0] - right[2] + 60  # regions of large attention are yellow
        assert [axes.texts[1].get_text() for axes in figure.axes] == ["", "0.90", "0.75"]
    assert not np.array_equal(first, second)


def test_long_captions_are_wrapped_and_long_words_shortened():
    words = [f"word{number}" for number in range(14)] + ["antidisestablishmentarianism"]
    long = _words("regions", words=words, attention=np.full((15, 2), 0.5))
    figure = draw_image_grid([long], title="t", footnote="f")
    places = [axes.get_position() for axes in figure.axes]
    assert len({round(place.x0, 4) for place in places}) == 11
    assert len({round(place.y0, 4) for place in places}) == 2
    assert all(place.x0 >= 0 and place.x1 <= 1 and place.y0 >= 0 and place.y1 <= 1 for place in places)
    assert len(figure.axes[-1].texts[0].get_text()) == MAX_LABEL_LENGTH


def test_nothing_that_is_written_overlaps():
    rows = [_words(name="one"), _words(name="two", words=("a", "very long caption " * 12))]
    figure = draw_image_grid(rows, title="A title " * 12, footnote="A footnote " * 40)
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    renderer = FigureCanvasAgg(figure).get_renderer()
    boxes = [text.get_window_extent(renderer) for text in figure.texts]
    boxes += [axes.get_window_extent(renderer) for axes in figure.axes]
    labels = [text for axes in figure.axes for text in axes.texts if text.get_text()]
    boxes += [text.get_window_extent(renderer) for text in labels]
    for place, box in enumerate(boxes):
        assert box.x0 >= 0
        assert box.y0 >= 0
        assert box.x1 <= figure.bbox.width
        assert not any(box.padded(-1).overlaps(other.padded(-1)) for other in boxes[:place])


def test_a_marked_region_is_outlined_in_every_tile():
    figure = draw_image_grid([_words(marked=1, joined=False)], title="t", footnote="f")
    assert "(a) xlan" in _texts(figure)
    blue = np.array([0, 114, 178])
    for axes in figure.axes:
        rows, columns = np.nonzero((np.asarray(axes.images[0].get_array()) == blue).all(axis=-1))
        assert columns.min() >= 150
        assert (columns.max(), rows.min(), rows.max()) == (298, 1, 223)


def test_words_that_do_not_fit_their_attention_are_refused():
    with pytest.raises(LegendaError, match=r"xlan: 1 words and 2 boxes need as much attention, not \(2, 2\)"):
        _words(words=("a",))


def test_heat_adds_up_where_boxes_overlap_and_fades_outside():
    boxes = np.array([[0.0, 0.0, 0.6, 1.0], [0.4, 0.0, 1.0, 1.0]])
    heat = attention_heatmap(boxes, np.array([0.5, 0.25]), (200, 40))
    assert heat.shape == (40, 200)
    assert heat.max() == 1.0
    middle = heat[20]
    assert middle[100] == pytest.approx(1.0, abs=0.02)
    assert middle[20] == pytest.approx(0.5 / 0.75, abs=0.02)
    assert middle[180] == pytest.approx(0.25 / 0.75, abs=0.02)
    assert not attention_heatmap(boxes, np.zeros(2), (20, 10)).any()


def test_matrices_stand_in_rows_with_their_range_and_regions_are_numbered():
    matrices = np.stack([np.eye(2), np.array([[0.2, 0.8], [1e-7, 1.0]])])
    model = WeightMatrices("mdsan_dsa: a dog", matrices, ["head 0", "1, w = 0.50"], BOXES)
    figure = draw_image_grid([Block("dog.jpg", matrix_rows([model], PICTURE))], title="Figure 4", footnote="f")
    texts = _texts(figure)
    assert {"Figure 4", "dog.jpg", "(a) mdsan_dsa: a dog", "head 0", "1, w = 0.50"} <= set(texts)
    assert [axes.texts[1].get_text() for axes in figure.axes] == ["", "0 to 1", "~0 to 1"]
    image, first, _ = (axes.images[0].get_array() for axes in figure.axes)
    np.testing.assert_array_equal(first, matrices[0])
    assert (np.asarray(image) < 128).any()  # the numbers
    assert len(matrix_rows([model])[0].tiles) == 2


@pytest.mark.parametrize("wrong", [np.ones((2, 2, 3)), np.ones((1, 2, 2)), np.full((2, 2, 2), np.inf)])
def test_matrices_must_be_square_finite_and_one_for_each_head(wrong):
    model = WeightMatrices("mdsan", wrong, ["head 0", "head 1"])
    with pytest.raises(LegendaError, match="mdsan needs a finite square matrix for each of 2 heads"):
        matrix_rows([model])


@pytest.mark.parametrize(("suffix", "begins"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF")])
def test_the_same_data_make_the_same_file(tmp_path, suffix, begins):
    files = []
    for name in ("a", "b"):
        figure = draw_curves([Curve("nsan", [1, 2], np.array([[1.0, 2.0]]))], score="s", title="t")
        files.append(save_figure(figure, tmp_path / f"{name}{suffix}").read_bytes())
    assert files[0] == files[1]
    assert files[0].startswith(begins)
    assert len(list(tmp_path.iterdir())) == 2


def test_an_unsupported_file_raises_one_sentence(tmp_path):
    with pytest.raises(LegendaError, match=r"a\.jpg has no supported figure format; use one of \.png, \.svg, \.pdf"):
        check_target("a.jpg")
    (tmp_path / "file").write_text("")
    figure = draw_curves([Curve("nsan", [1, 2], np.array([[1.0, 2.0]]))], score="s", title="t")
    with pytest.raises(LegendaError, match="could not be written"):
        save_figure(figure, tmp_path / "file" / "a.png")


def test_without_matplotlib_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(LegendaError, match=r"pip install '\.\[figures\]'"):
        draw_curves([Curve("nsan", [1], np.array([[1.0]]))], score="s", title="t")
