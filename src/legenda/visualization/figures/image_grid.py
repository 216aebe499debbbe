"""Rows of small pictures with a line of text over each row and a label under each picture."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from legenda.visualization.figures.canvas import FAINT, INK, MAP, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SIDE, _GAP, _MARGIN = 1.2, 0.11, 0.2  # inches
_LINE, _LABEL, _NOTE = 0.19, 0.25, 0.15
_SIGNS = 13.5
"""Signs of a heading in an inch."""
LONGEST = 15
"""Signs of a label that fit under a tile."""


@dataclass(frozen=True)
class Tile:
    """A picture `(height, width, 3)` of bytes, or numbers `(n, m)` in colours of their own scale, and what is below."""

    pixels: np.ndarray
    label: str = ""
    note: str = ""


@dataclass(frozen=True)
class Row:
    """Tiles side by side, broken into lines where they are many, under a heading."""

    heading: str
    tiles: Sequence[Tile]


@dataclass(frozen=True)
class Block:
    """Rows that belong together."""

    title: str
    rows: Sequence[Row]


def draw_image_grid(blocks: Sequence[Block], *, title: str, footnote: str, columns: int) -> Figure:
    """All blocks below each other, at most `columns` tiles in a line."""
    widest = max(len(row.tiles) for block in blocks for row in block.rows)
    columns = max(4, min(columns, widest))
    width = 2 * _MARGIN + columns * (_SIDE + _GAP) - _GAP
    signs = int(width * _SIGNS)
    plan = [
        (block, [(row, _lines(row, columns), textwrap.wrap(row.heading, signs)) for row in block.rows])
        for block in blocks
    ]
    notes, heads = textwrap.wrap(footnote, int(signs * 1.15)), textwrap.wrap(title, int(signs * 0.8))
    height = 2 * _MARGIN + 0.26 * len(heads) + 0.16 * len(notes)
    for block, rows in plan:
        height += (0.3 if block.title else 0.0) + sum(
            0.08 + len(heading) * _LINE + sum(_high(line) + _below(line) for line in lines)
            for _, lines, heading in rows
        )
    figure = new_figure(width, height)
    top = height - _MARGIN

    def say(text: str, size: float, high: float, *, colour: str = INK, weight: str = "normal") -> None:
        nonlocal top
        figure.text(_MARGIN / width, top / height, text, fontsize=size, va="top", color=colour, weight=weight)
        top -= high

    for head in heads:
        say(head, 12, 0.26)
    for block, rows in plan:
        if block.title:
            top -= 0.06
            say(block.title, 10.5, 0.24, weight="bold")
        for _, lines, heading in rows:
            top -= 0.08
            for text in heading:
                say(text, 9.5, _LINE)
            for line in lines:
                high = _high(line)
                for column, tile in enumerate(line):
                    left = _MARGIN + column * (_SIDE + _GAP)
                    _show(figure, tile, (left / width, (top - high) / height, _SIDE / width, high / height))
                top -= high + _below(line)
    for note in notes:
        say(note, 8, 0.16, colour=FAINT)
    return figure


def shortened(text: str) -> str:
    """A label that fits under a tile."""
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}\u2026"


def _lines(row: Row, columns: int) -> list[Sequence[Tile]]:
    return [row.tiles[first : first + columns] for first in range(0, len(row.tiles), columns)]


def _high(line: Sequence[Tile]) -> float:
    """Inches of the highest tile."""
    return max(_SIDE * tile.pixels.shape[0] / tile.pixels.shape[1] for tile in line)


def _below(line: Sequence[Tile]) -> float:
    """Inches of what stands under the tiles."""
    return _LABEL + (_NOTE if any(tile.note for tile in line) else 0.0)


def _show(figure: Figure, tile: Tile, place: tuple[float, float, float, float]) -> None:
    axes = figure.add_axes(place, anchor="N")
    axes.imshow(tile.pixels, cmap=MAP, interpolation="nearest" if tile.pixels.ndim == 2 else "antialiased")
    axes.set_xticks([])
    axes.set_yticks([])
    for side in axes.spines.values():
        side.set(color="#c4c1b9", linewidth=0.6)
    axes.text(0.5, -0.03, shortened(tile.label), transform=axes.transAxes, fontsize=9, color=INK, ha="center", va="top")
    below = -0.03 - 0.155 / (place[3] * figure.get_figheight())
    axes.text(0.5, below, tile.note, transform=axes.transAxes, fontsize=7.5, color=FAINT, ha="center", va="top")
