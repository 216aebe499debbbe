"""Scores by epoch (NG-SAN, Figure 2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from legenda.errors import DataError
from legenda.report.figures.canvas import COLORS, DASHES, FAINT, INK, new_figure, style_axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
