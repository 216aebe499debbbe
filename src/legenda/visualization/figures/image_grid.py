"""Rows of image tiles with a heading above each row and a label below each tile."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from legenda.visualization.figures.canvas import COLORMAP, FAINT, INK, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SIDE, _GAP, _MARGIN = 1.2, 0.11, 0.2  # inches
_LINE, _LABEL, _NOTE = 0.19, 0.25, 0.15
_CHARACTERS_PER_INCH = 13.5
"""Of a heading."""
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


def draw_image_grid(blocks: Sequence[Block], *, title: str, footnote: str, columns: int) -> Figure:
    """Draw all blocks below each other, with at most `columns` tiles in a line."""
    widest = max(len(row.tiles) for block in blocks for row in block.rows)
    columns = max(4, min(columns, widest))
    width = 2 * _MARGIN + columns * (_SIDE + _GAP) - _GAP
    characters = int(width * _CHARACTERS_PER_INCH)
    plan = [
        (block, [(row, _lines(row, columns), textwrap.wrap(row.heading, characters)) for row in block.rows])
        for block in blocks
    ]
    notes, titles = textwrap.wrap(footnote, int(characters * 1.15)), textwrap.wrap(title, int(characters * 0.8))
    height = 2 * _MARGIN + 0.26 * len(titles) + 0.16 * len(notes)
    for block, rows in plan:
        height += (0.3 if block.title else 0.0) + sum(
            0.08 + len(heading) * _LINE + sum(_height(line) + _label_height(line) for line in lines)
            for _, lines, heading in rows
        )
    figure = new_figure(width, height)
    top = height - _MARGIN

    def write(text: str, size: float, height_below: float, *, color: str = INK, weight: str = "normal") -> None:
        nonlocal top
        figure.text(_MARGIN / width, top / height, text, fontsize=size, va="top", color=color, weight=weight)
        top -= height_below

    for line in titles:
        write(line, 12, 0.26)
    for block, rows in plan:
        if block.title:
            top -= 0.06
            write(block.title, 10.5, 0.24, weight="bold")
        for _, lines, heading in rows:
            top -= 0.08
            for text in heading:
                write(text, 9.5, _LINE)
            for line in lines:
                line_height = _height(line)
                for column, tile in enumerate(line):
                    left = _MARGIN + column * (_SIDE + _GAP)
                    _draw_tile(
                        figure, tile, (left / width, (top - line_height) / height, _SIDE / width, line_height / height)
                    )
                top -= line_height + _label_height(line)
    for note in notes:
        write(note, 8, 0.16, color=FAINT)
    return figure


def shorten_label(text: str) -> str:
    """Return a label that fits below a tile."""
    return text if len(text) <= MAX_LABEL_LENGTH else f"{text[: MAX_LABEL_LENGTH - 1]}\u2026"


def _lines(row: Row, columns: int) -> list[Sequence[Tile]]:
    return [row.tiles[first : first + columns] for first in range(0, len(row.tiles), columns)]


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
