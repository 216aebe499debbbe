"""A value as a function of two variables, for several values of a third (NG-SAN, Figures 3 and 4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from legenda.errors import DataError
from legenda.visualization.figures.canvas import COLORMAP, FAINT, INK, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PANEL, _BAR, _LEFT, _TOP, _BETWEEN = 2.5, 0.9, 0.7, 0.4, 1.05  # inches


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
    columns, size = len(fixed), len(grid)
    width = _LEFT + columns * (_PANEL + 0.2) + _BAR
    height = _TOP + len(rows) * (_PANEL + _BETWEEN)
    figure = new_figure(width, height)
    figure.text(0.15 / width, 1 - 0.12 / height, title, fontsize=12, color=INK, va="top")
    for number, row in enumerate(rows):
        values = np.asarray(row.values, dtype=float)
        if values.shape != (columns, size, size) or not np.isfinite(values).all():
            raise DataError(f"{row.name} needs finite values ({columns}, {size}, {size}), not {values.shape}")
        low, high = np.percentile(values, (1, 99)).tolist()
        if high - low < 1e-9:  # constant, without contours
            low, high = low - 0.5, high + 0.5
        bottom = height - _TOP - (number + 1) * (_PANEL + _BETWEEN) + 0.6
        figure.text(0.15 / width, (bottom + _PANEL + 0.28) / height, row.name, fontsize=10.5, color=INK)
        mesh = None
        for column, (heading, surface) in enumerate(zip(fixed, values, strict=True)):
            left = _LEFT + column * (_PANEL + 0.2)
            axes = figure.add_axes((left / width, bottom / height, _PANEL / width, _PANEL / height))
            mesh = axes.pcolormesh(
                grid, grid, surface, cmap=COLORMAP, vmin=low, vmax=high, shading="gouraud", rasterized=True
            )
            if np.ptp(surface) > 1e-9:
                levels = np.linspace(low, high, 9)[1:-1]
                axes.contour(grid, grid, surface, levels=levels, colors="white", linestyles="solid", linewidths=0.6)
            axes.set_title(heading, fontsize=10, color=INK)
            axes.set_xlabel(axes_names[0], fontsize=10, color=INK)
            axes.set_xticks(_integer_ticks(grid))
            axes.set_yticks(_integer_ticks(grid))
            axes.tick_params(labelsize=9, colors=INK)
            if column == 0:
                axes.set_ylabel(axes_names[1], fontsize=10, color=INK)
            else:
                axes.set_yticklabels([])
        left = _LEFT + columns * (_PANEL + 0.2)
        bar = figure.add_axes((left / width, bottom / height, 0.14 / width, _PANEL / height))
        assert mesh is not None
        figure.colorbar(mesh, cax=bar, extend="both")
        bar.tick_params(labelsize=9, colors=INK)
        bar.set_title(measured, fontsize=10, color=FAINT)
    return figure


def _integer_ticks(grid: np.ndarray) -> range:
    """Return the integers in the range of an axis."""
    return range(int(np.ceil(grid.min())), int(grid.max()) + 1)
