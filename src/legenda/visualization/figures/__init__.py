"""The papers' figures, drawn from plain data: arrays, pictures and words become a Figure of matplotlib."""

from legenda.visualization.figures.canvas import check_target, save_figure
from legenda.visualization.figures.curves import Curve, draw_curves
from legenda.visualization.figures.matrices import PictureMatrices, WeightMatrices, draw_matrices
from legenda.visualization.figures.surface_plot import Surfaces, draw_surfaces
from legenda.visualization.figures.words import PictureWords, SpokenWords, draw_word_rows

__all__ = [
    "Curve",
    "PictureMatrices",
    "PictureWords",
    "SpokenWords",
    "Surfaces",
    "WeightMatrices",
    "check_target",
    "draw_curves",
    "draw_matrices",
    "draw_surfaces",
    "draw_word_rows",
    "save_figure",
]
