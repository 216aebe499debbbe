"""Figures of the papers, drawn with matplotlib from arrays, images and words."""

from legenda.report.figures.canvas import check_target, save_figure
from legenda.report.figures.curves import Curve, draw_curves
from legenda.report.figures.image_grid import Block, draw_image_grid
from legenda.report.figures.matrices import WeightMatrices, matrix_rows
from legenda.report.figures.surface_plot import SurfaceRow, draw_surface_plots
from legenda.report.figures.words import CaptionRow, word_rows

__all__ = [
    "Block",
    "CaptionRow",
    "Curve",
    "SurfaceRow",
    "WeightMatrices",
    "check_target",
    "draw_curves",
    "draw_image_grid",
    "draw_surface_plots",
    "matrix_rows",
    "save_figure",
    "word_rows",
]
