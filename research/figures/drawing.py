"""Figures drawn with matplotlib from arrays, images and words: curves, surfaces, rows of image tiles, matrices."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image, ImageDraw, ImageFont, ImageOps
from scipy.ndimage import gaussian_filter

from legenda.errors import ConfigError, DataError
from legenda.io import atomic_write
from legenda.report.overlay import MAX_OUTLINES, draw_overlay

PAPER, INK, FAINT = "#ffffff", "#1d1f24", "#6b6f76"
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""The palette of Okabe and Ito, for color-blind readers; the most different colors first."""
DASHES = ("-", "--", "-.", ":")
COLORMAP = "viridis"
"""The higher a value, the brighter, also in gray."""

_DPI = 150
_METADATA = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
"""The file formats, with metadata that omits the time of writing: equal data make equal files."""


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure; width and height in inches."""
    return Figure(figsize=(width, height), dpi=_DPI, facecolor=PAPER)


def style_axes(axes: Axes) -> None:
    """Add a faint grid behind the data and hide the upper and right spines."""
    axes.grid(color="#e3e4e6", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=10, colors=INK)


def check_target(path: str | Path) -> Path:
    """Return the path of a figure; raise ConfigError unless its suffix is a supported format."""
    path = Path(path)
    if path.suffix.lower().removeprefix(".") not in _METADATA:
        known = ", ".join(f".{name}" for name in _METADATA)
        raise ConfigError(f"{path} has no supported figure format; use one of {known}")
    return path


def save_figure(figure: Figure, path: str | Path) -> Path:
    """Write the figure atomically, in the format of the suffix, and return its path.

    Raise an error for another suffix, and when the file cannot be written.
    """
    path = check_target(path)
    form = path.suffix.lower().removeprefix(".")
    with matplotlib.rc_context({"svg.hashsalt": "legenda"}), atomic_write(path) as partial:
        figure.savefig(partial, format=form, metadata=_METADATA[form])
    return path


@dataclass(frozen=True)
class Curve:
    """One system: its score at E epochs of S runs, `(S, E)`."""

    name: str
    epochs: Sequence[int]
    values: np.ndarray


def draw_curves(curves: Sequence[Curve], *, score: str, title: str) -> Figure:
    """Draw a line for each system; for several runs their mean with a band from the lowest to the highest run.

    Raise DataError when the shapes disagree or a curve has no point.
    """
    figure = new_figure(6.4, 4.2)
    axes = figure.add_subplot()
    for number, curve in enumerate(curves):
        values = np.asarray(curve.values, dtype=float)
        if values.ndim != 2 or values.shape[1] != len(curve.epochs) or not values.size:
            raise DataError(f"{curve.name} needs values (runs, {len(curve.epochs)} epochs), not {values.shape}")
        color, runs = COLORS[number % len(COLORS)], len(values)
        label = curve.name if runs == 1 else f"{curve.name} (mean of {runs})"
        axes.plot(
            curve.epochs,
            values.mean(axis=0),
            DASHES[number % len(DASHES)],
            color=color,
            linewidth=2,
            marker="o",
            markersize=3.5,
            label=label,
        )
        if runs > 1:
            axes.fill_between(curve.epochs, values.min(axis=0), values.max(axis=0), color=color, alpha=0.18, lw=0)
    axes.set_xlabel("epoch", fontsize=11, color=INK)
    axes.set_ylabel(score, fontsize=11, color=INK)
    axes.set_title(title, fontsize=12, color=INK, loc="left")
    axes.locator_params(axis="x", integer=True)
    style_axes(axes)
    axes.legend(fontsize=10, frameon=False, loc="best")
    if any(len(curve.values) > 1 for curve in curves):
        figure.text(0.995, 0.01, "band: lowest to highest run", fontsize=8, color=FAINT, ha="right", va="bottom")
    figure.tight_layout()
    return figure


@dataclass(frozen=True)
class SurfaceRow:
    """One row of plots: values `(F, Y, X)` over the grid of both axes, for F fixed values of the third variable."""

    name: str
    values: np.ndarray


def draw_surface_plots(
    rows: Sequence[SurfaceRow],
    grid: np.ndarray,
    *,
    axes_names: tuple[str, str],
    fixed: Sequence[str],
    measured: str,
    title: str,
) -> Figure:
    """Draw plots with color and contour lines; those of one row share a color scale.

    The scale clips the lowest and the highest percentile of the values.

    grid: the values of both axes; fixed: the title of each column. Raise DataError when the shapes disagree or a value
    is not finite.
    """
    figure = new_figure(1.4 + 2.7 * len(fixed), 0.4 + 3.3 * len(rows))
    figure.set_layout_engine("constrained")
    figure.suptitle(title, x=0.01, ha="left", fontsize=12, color=INK)
    shape = (len(fixed), len(grid), len(grid))
    for row, part in zip(rows, figure.subfigures(len(rows), squeeze=False).flat, strict=True):
        values = np.asarray(row.values, dtype=float)
        if values.shape != shape or not np.isfinite(values).all():
            raise DataError(f"{row.name} needs finite values {shape}, not {values.shape}")
        low, high = np.percentile(values, (1, 99)).tolist()
        if high - low < 1e-9:  # constant, without contours
            low, high = low - 0.5, high + 0.5
        part.suptitle(row.name, x=0.01, ha="left", fontsize=10.5, color=INK)
        panels = part.subplots(1, len(fixed), sharey=True, squeeze=False)[0]
        for axes, heading, surface in zip(panels, fixed, values, strict=True):
            mesh = axes.pcolormesh(
                grid, grid, surface, cmap=COLORMAP, vmin=low, vmax=high, shading="gouraud", rasterized=True
            )
            if np.ptp(surface) > 1e-9:
                levels = np.linspace(low, high, 9)[1:-1]
                axes.contour(grid, grid, surface, levels=levels, colors="white", linestyles="solid", linewidths=0.6)
            axes.set_title(heading, fontsize=10, color=INK)
            axes.set_xlabel(axes_names[0], fontsize=10, color=INK)
            axes.set(xticks=_integer_ticks(grid), yticks=_integer_ticks(grid), box_aspect=1)
            axes.tick_params(labelsize=9, colors=INK)
        panels[0].set_ylabel(axes_names[1], fontsize=10, color=INK)
        bar = part.colorbar(mesh, ax=panels, extend="both").ax
        bar.tick_params(labelsize=9, colors=INK)
        bar.set_title(measured, fontsize=10, color=FAINT)
    return figure


def _integer_ticks(grid: np.ndarray) -> range:
    """Return the integers in the range of an axis."""
    return range(int(np.ceil(grid.min())), int(grid.max()) + 1)


_SIDE, _GAP, _MARGIN = 1.2, 0.11, 0.2  # inches
_LINE, _LABEL, _NOTE = 0.19, 0.25, 0.15
_CHARACTERS_PER_INCH = 13.5
"""Characters of a heading in an inch of its line."""
MAX_COLUMNS = 11
"""Tiles in a line."""
MAX_LABEL_LENGTH = 15
"""Characters of a label that fit below a tile."""


@dataclass(frozen=True)
class Tile:
    """Pixels `(height, width, 3)`, or values `(n, m)` that are drawn in a color scale of the tile, and text below."""

    pixels: np.ndarray
    label: str = ""
    note: str = ""


@dataclass(frozen=True)
class Row:
    """Tiles side by side under a heading, wrapped into several lines if necessary."""

    heading: str
    tiles: Sequence[Tile]


@dataclass(frozen=True)
class Block:
    """A group of rows with a title."""

    title: str
    rows: Sequence[Row]


def draw_image_grid(blocks: Sequence[Block], *, title: str, footnote: str, columns: int = MAX_COLUMNS) -> Figure:
    """Draw all blocks below each other, with at most `columns` tiles in a line."""
    widest = max(len(row.tiles) for block in blocks for row in block.rows)
    columns = max(4, min(columns, widest))
    width = 2 * _MARGIN + columns * (_SIDE + _GAP) - _GAP
    characters = int(width * _CHARACTERS_PER_INCH)
    lines: list[tuple[float, str | Sequence[Tile], dict[str, Any]]] = []  # height below its top, content, text style
    lines += [(0.26, text, {"fontsize": 12, "color": INK}) for text in textwrap.wrap(title, int(characters * 0.8))]
    for block in blocks:
        if block.title:
            lines += [(0.06, "", {}), (0.24, block.title, {"fontsize": 10.5, "color": INK, "weight": "bold"})]
        for row in block.rows:
            lines.append((0.08, "", {}))
            lines += [(_LINE, text, {"fontsize": 9.5, "color": INK}) for text in textwrap.wrap(row.heading, characters)]
            tile_lines = (row.tiles[first : first + columns] for first in range(0, len(row.tiles), columns))
            lines += [(_height(tiles) + _label_height(tiles), tiles, {}) for tiles in tile_lines]
    notes = textwrap.wrap(footnote, int(characters * 1.15))
    lines += [(0.16, note, {"fontsize": 8, "color": FAINT}) for note in notes]
    height = 2 * _MARGIN + sum(line_height for line_height, _, _ in lines)
    figure = new_figure(width, height)
    top = height - _MARGIN
    for line_height, content, style in lines:
        if isinstance(content, str):
            figure.text(_MARGIN / width, top / height, content, va="top", **style)
        else:
            bottom, tile_height = top - _height(content), _height(content)
            for column, tile in enumerate(content):
                left = _MARGIN + column * (_SIDE + _GAP)
                _draw_tile(figure, tile, (left / width, bottom / height, _SIDE / width, tile_height / height))
        top -= line_height
    return figure


def shorten_label(text: str) -> str:
    """Return a label that fits below a tile."""
    return text if len(text) <= MAX_LABEL_LENGTH else f"{text[: MAX_LABEL_LENGTH - 1]}\u2026"


def _height(line: Sequence[Tile]) -> float:
    """Return the height of the highest tile in inches."""
    return max(_SIDE * tile.pixels.shape[0] / tile.pixels.shape[1] for tile in line)


def _label_height(line: Sequence[Tile]) -> float:
    """Return the height of the text below the tiles in inches."""
    return _LABEL + (_NOTE if any(tile.note for tile in line) else 0.0)


def _draw_tile(figure: Figure, tile: Tile, rectangle: tuple[float, float, float, float]) -> None:
    axes = figure.add_axes(rectangle, anchor="N")
    axes.imshow(tile.pixels, cmap=COLORMAP, interpolation="nearest" if tile.pixels.ndim == 2 else "antialiased")
    axes.set_xticks([])
    axes.set_yticks([])
    for side in axes.spines.values():
        side.set(color="#c4c1b9", linewidth=0.6)
    axes.text(
        0.5, -0.03, shorten_label(tile.label), transform=axes.transAxes, fontsize=9, color=INK, ha="center", va="top"
    )
    below = -0.03 - 0.155 / (rectangle[3] * figure.get_figheight())
    axes.text(0.5, below, tile.note, transform=axes.transAxes, fontsize=7.5, color=FAINT, ha="center", va="top")


_MATRIX_IMAGE_SIDE = 300


@dataclass(frozen=True)
class WeightMatrices:
    """The matrices of H heads of one model, `(H, N, N)`, where row i has the weights of query region i."""

    heading: str
    matrices: np.ndarray
    heads: Sequence[str]
    boxes: np.ndarray | None = None
    """The boxes of the regions, `(N, 4)` in 0..1; if they are few, they are numbered in the image."""


def matrix_rows(models: Sequence[WeightMatrices], image: Image.Image | None = None) -> list[Row]:
    """Return a row of matrices for each model, after the image if there is one; the range is given below each matrix.

    Raise DataError where matrices are not square, not finite, or their number differs from that of the heads.
    """
    rows = []
    for number, model in enumerate(models):
        matrices = np.asarray(model.matrices, dtype=float)
        square = matrices.ndim == 3 and matrices.shape[1] == matrices.shape[2]
        if not square or len(matrices) != len(model.heads) or not np.isfinite(matrices).all():
            raise DataError(
                f"{model.heading} needs a finite square matrix for each of {len(model.heads)} heads, not "
                f"{matrices.shape}"
            )
        tiles = [] if image is None else [Tile(_number_regions(image, model.boxes), "image")]
        tiles += [
            Tile(matrix, head, f"{_format(matrix.min())} to {_format(matrix.max())}")
            for matrix, head in zip(matrices, model.heads, strict=True)
        ]
        rows.append(Row(f"({chr(97 + number)}) {model.heading}", tiles))
    return rows


def _format(number: float) -> str:
    return "~0" if 0 < number < 1e-4 else f"{number:.2g}"


def _number_regions(image: Image.Image, boxes: np.ndarray | None) -> np.ndarray:
    """Return the image with the regions numbered from 1, unless there are too many."""
    pixels = ImageOps.contain(image.convert("RGB"), (_MATRIX_IMAGE_SIDE, _MATRIX_IMAGE_SIDE))
    if boxes is not None and len(boxes) <= MAX_OUTLINES:
        draw, font = ImageDraw.Draw(pixels), ImageFont.load_default(26)
        for number, (x1, y1, x2, y2) in enumerate(boxes.tolist(), start=1):
            middle = ((x1 + x2) / 2 * pixels.width, (y1 + y2) / 2 * pixels.height)
            draw.text(middle, str(number), fill="white", font=font, anchor="mm", stroke_width=3, stroke_fill="black")
    return np.asarray(pixels)


Style = Literal["regions", "heat"]

_SIDES: dict[Style, int] = {"regions": 200, "heat": 300}
"""Pixels of a tile's longer side; outlines and labels are larger relative to smaller tiles."""
_BLUR = 0.035
"""Standard deviation of the heatmap's blur, relative to the longer side of the image."""
_HEAT_COLORMAP = "inferno"
_MARK_COLOR = (0, 114, 178)


@dataclass(frozen=True)
class CaptionRow:
    """The caption of one model: weights `(T, N)` of T words over boxes `(N, 4)`, in 0..1 of the image."""

    name: str
    words: Sequence[str]
    attention: np.ndarray
    boxes: np.ndarray
    remark: str = ""
    marked: int | None = None
    """The index of a region to outline in every tile, such as the query region of self-attention."""


def word_rows(image: Image.Image, captions: Sequence[CaptionRow], style: Style, *, joined: bool = True) -> list[Row]:
    """Return a row for each caption of an image: the image, and the image with the attention of each word.

    style: "regions" darkens regions of small weight and outlines the one with the largest weight in red, labeled with
    it; "heat" draws a heatmap over the gray image, labeled with the largest weight. joined: whether the words form a
    sentence, which then precedes the row. Raise DataError where the shapes of words, weights and boxes disagree.
    """
    image = ImageOps.contain(image.convert("RGB"), (_SIDES[style], _SIDES[style]))
    rows = []
    for number, caption in enumerate(captions):
        if caption.attention.shape != (len(caption.words), len(caption.boxes)):
            raise DataError(
                f"{caption.name}: {len(caption.words)} words and {len(caption.boxes)} boxes need as much "
                f"attention, not {caption.attention.shape}"
            )
        text = f": {' '.join(caption.words)}" if joined and caption.words else ""
        remark = f" ({caption.remark})" if caption.remark else ""
        tiles = [Tile(np.asarray(image), "image")]
        tiles += [
            _tile(image, caption.boxes, word, weights, style)
            for word, weights in zip(caption.words, caption.attention, strict=True)
        ]
        if caption.marked is not None:
            tiles = [_mark(tile, caption.boxes[caption.marked]) for tile in tiles]
        rows.append(Row(f"({chr(97 + number)}) {caption.name}{text}{remark}", tiles))
    return rows


def attention_heatmap(boxes: np.ndarray, weights: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Return the weights as a heatmap `(height, width)` in 0..1: overlapping regions add up, then a blur."""
    heat = np.zeros((size[1], size[0]))
    edges = np.rint(np.clip(boxes, 0, 1) * np.array([*size, *size])).astype(int)
    for (x1, y1, x2, y2), weight in zip(edges, weights, strict=True):
        heat[y1 : max(y2, y1 + 1), x1 : max(x2, x1 + 1)] += weight
    if not heat.any():
        return heat
    blurred = gaussian_filter(heat, _BLUR * max(size), mode="nearest")
    return blurred / blurred.max()


def _tile(image: Image.Image, boxes: np.ndarray, word: str, weights: np.ndarray, style: Style) -> Tile:
    if style == "regions":
        return Tile(np.asarray(draw_overlay(image, boxes, weights)), word)
    heat = attention_heatmap(boxes, weights, image.size)[..., None]
    gray = np.asarray(image.convert("L"), dtype=float)[..., None]
    colors = matplotlib.colormaps[_HEAT_COLORMAP](heat[..., 0])[..., :3] * 255
    alpha = 0.85 * np.sqrt(heat)
    return Tile(((1 - alpha) * gray + alpha * colors).round().astype(np.uint8), word, f"{weights.max():.2f}")


def _mark(tile: Tile, box: np.ndarray) -> Tile:
    """Return the tile with a blue and white line around a box."""
    pixels = Image.fromarray(tile.pixels)
    draw = ImageDraw.Draw(pixels)
    x1, y1, x2, y2 = np.rint(np.clip(box, 0, 1) * np.array([*pixels.size, *pixels.size]) - [0, 0, 1, 1]).tolist()
    draw.rectangle((x1, y1, x2, y2), outline=(255, 255, 255), width=6)
    draw.rectangle((x1 + 1, y1 + 1, x2 - 1, y2 - 1), outline=_MARK_COLOR, width=4)
    return replace(tile, pixels=np.asarray(pixels))
