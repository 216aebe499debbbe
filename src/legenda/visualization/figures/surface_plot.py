"""A number as a function of two others, for some values of a third (NG-SAN, Figures 3 and 4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from legenda.errors import UserError
from legenda.visualization.figures.canvas import FAINT, INK, MAP, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PANEL, _BAR, _LEFT, _TOP, _BETWEEN = 2.5, 0.9, 0.7, 0.4, 1.05  # inches


@dataclass(frozen=True)
class SurfaceRow:
    """One row of plots: for each of F fixed values the numbers `(F, Y, X)` over the places of both axes."""

    name: str
    values: np.ndarray


def draw_surface_plots(
    rows: Sequence[SurfaceRow],
    places: np.ndarray,
    *,
    axes_names: tuple[str, str],
    fixed: Sequence[str],
    measured: str,
    title: str,
) -> Figure:
    """Plots whose colours and contour lines tell the number; those of one row share a scale, which stands beside it.

    The scale leaves out the lowest and the highest hundredth of the numbers, which would take the colours of the rest.

    places: where the numbers were taken, the same on both axes; fixed: what stands over each column.
    Raises UserError when the shapes disagree or a number is not finite.
    """
    columns, size = len(fixed), len(places)
    width = _LEFT + columns * (_PANEL + 0.2) + _BAR
    height = _TOP + len(rows) * (_PANEL + _BETWEEN)
    figure = new_figure(width, height)
    figure.text(0.15 / width, 1 - 0.12 / height, title, fontsize=12, color=INK, va="top")
    for number, row in enumerate(rows):
        values = np.asarray(row.values, dtype=float)
        if values.shape != (columns, size, size) or not np.isfinite(values).all():
            raise UserError(f"{row.name} needs finite numbers ({columns}, {size}, {size}), not {values.shape}")
        low, high = np.percentile(values, (1, 99)).tolist()
        if high - low < 1e-9:  # the same everywhere, which has no contours
            low, high = low - 0.5, high + 0.5
        bottom = height - _TOP - (number + 1) * (_PANEL + _BETWEEN) + 0.6
        figure.text(0.15 / width, (bottom + _PANEL + 0.28) / height, row.name, fontsize=10.5, color=INK)
        shown = None
        for column, (told, surface) in enumerate(zip(fixed, values, strict=True)):
            left = _LEFT + column * (_PANEL + 0.2)
            axes = figure.add_axes((left / width, bottom / height, _PANEL / width, _PANEL / height))
            shown = axes.pcolormesh(
                places, places, surface, cmap=MAP, vmin=low, vmax=high, shading="gouraud", rasterized=True
            )
            if np.ptp(surface) > 1e-9:
                levels = np.linspace(low, high, 9)[1:-1]
                axes.contour(places, places, surface, levels=levels, colors="white", linestyles="solid", linewidths=0.6)
            axes.set_title(told, fontsize=10, color=INK)
            axes.set_xlabel(axes_names[0], fontsize=10, color=INK)
            axes.set_xticks(_whole(places))
            axes.set_yticks(_whole(places))
            axes.tick_params(labelsize=9, colors=INK)
            if column == 0:
                axes.set_ylabel(axes_names[1], fontsize=10, color=INK)
            else:
                axes.set_yticklabels([])
        left = _LEFT + columns * (_PANEL + 0.2)
        bar = figure.add_axes((left / width, bottom / height, 0.14 / width, _PANEL / height))
        assert shown is not None
        figure.colorbar(shown, cax=bar, extend="both")
        bar.tick_params(labelsize=9, colors=INK)
        bar.set_title(measured, fontsize=10, color=FAINT)
    return figure


def _whole(places: np.ndarray) -> range:
    """The whole numbers among the places, which the ticks name."""
    return range(int(np.ceil(places.min())), int(places.max()) + 1)
