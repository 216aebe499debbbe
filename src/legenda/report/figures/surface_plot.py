"""A value as a function of two variables, for several values of a third (NG-SAN, Figures 3 and 4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from legenda.errors import DataError
from legenda.report.figures.canvas import COLORMAP, FAINT, INK, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
