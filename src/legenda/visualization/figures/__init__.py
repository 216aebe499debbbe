"""Figures of the papers, drawn with matplotlib from arrays, images and words."""

from legenda.visualization.figures.canvas import check_target, save_figure
from legenda.visualization.figures.curves import Curve, draw_curves
from legenda.visualization.figures.matrices import ImageMatrices, WeightMatrices, draw_matrices
from legenda.visualization.figures.surface_plot import SurfaceRow, draw_surface_plots
from legenda.visualization.figures.words import CaptionRow, ImageCaptions, draw_word_rows

__all__ = [
    "CaptionRow",
    "Curve",
    "ImageCaptions",
    "ImageMatrices",
    "SurfaceRow",
    "WeightMatrices",
    "check_target",
    "draw_curves",
    "draw_matrices",
    "draw_surface_plots",
    "draw_word_rows",
    "save_figure",
]
