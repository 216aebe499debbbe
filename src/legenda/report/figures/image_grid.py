"""Rows of image tiles with a heading above each row and a label below each tile."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from legenda.report.figures.canvas import COLORMAP, FAINT, INK, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SIDE, _GAP, _MARGIN = 1.2, 0.11, 0.2  # inches
_LINE, _LABEL, _NOTE = 0.19, 0.25, 0.15
_CHARACTERS_PER_INCH = 13.5
"""Of a heading."""
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
