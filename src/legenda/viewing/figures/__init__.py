"""The papers' figures, drawn from plain data: arrays, pictures and words become a Figure of matplotlib."""

from legenda.viewing.figures.canvas import check_target, save_figure
from legenda.viewing.figures.curves import Curve, draw_curves
from legenda.viewing.figures.matrices import PictureMatrices, WeightMatrices, draw_matrices
from legenda.viewing.figures.surfaces import Surfaces, draw_surfaces
from legenda.viewing.figures.words import PictureWords, SpokenWords, draw_word_rows

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
