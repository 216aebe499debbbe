"""Square matrices of regions, one for each head (MD-SAN, Figures 3 and 4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageDraw, ImageFont, ImageOps

from legenda.errors import UserError
from legenda.visualization.figures.image_grid import Block, Row, Tile, draw_image_grid
from legenda.visualization.overlay import MAX_OUTLINES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SIDE = 300
_HEADS = 8


@dataclass(frozen=True)
class WeightMatrices:
    """One model: a matrix of each of H heads, `(H, N, N)`, row i being what region i gives to all, and their names."""

    heading: str
    matrices: np.ndarray
    heads: Sequence[str]
    boxes: np.ndarray | None = None
    """Where the regions lie, `(N, 4)` in 0..1, which numbers them in the picture where they are few."""


@dataclass(frozen=True)
class ImageMatrices:
    """The matrices of some models, and the picture they are of where it is to be shown."""

    title: str
    image: Image.Image | None
    models: Sequence[WeightMatrices]


def draw_matrices(pictures: Sequence[ImageMatrices], *, title: str, footnote: str) -> Figure:
    """For each model a row of matrices, each with colours from its least number to its largest, which are told below.

    Raises UserError where matrices are not square, not finite, or not as many as the heads.
    """
    blocks = []
    for picture in pictures:
        rows = []
        for number, model in enumerate(picture.models):
            matrices = np.asarray(model.matrices, dtype=float)
            square = matrices.ndim == 3 and matrices.shape[1] == matrices.shape[2]
            if not square or len(matrices) != len(model.heads) or not np.isfinite(matrices).all():
                raise UserError(
                    f"{model.heading} needs a finite square matrix for each of {len(model.heads)} heads, not "
                    f"{matrices.shape}"
                )
            tiles = [
                Tile(matrix, head, f"{_short(matrix.min())} to {_short(matrix.max())}")
                for matrix, head in zip(matrices, model.heads, strict=True)
            ]
            if picture.image is not None:
                tiles.insert(0, Tile(_numbered(picture.image, model.boxes), "picture"))
            rows.append(Row(f"({chr(97 + number)}) {model.heading}", tiles))
        blocks.append(Block(picture.title, rows))
    shown = any(picture.image is not None for picture in pictures)
    return draw_image_grid(blocks, title=title, footnote=footnote, columns=_HEADS + shown)


def _short(number: float) -> str:
    return "~0" if 0 < number < 1e-4 else f"{number:.2g}"


def _numbered(picture: Image.Image, boxes: np.ndarray | None) -> np.ndarray:
    """The picture, in which the regions are numbered from 1 on unless they are too many."""
    shown = ImageOps.contain(picture.convert("RGB"), (_SIDE, _SIDE))
    if boxes is not None and len(boxes) <= MAX_OUTLINES:
        brush, font = ImageDraw.Draw(shown), ImageFont.load_default(26)
        for number, (x1, y1, x2, y2) in enumerate(boxes.tolist(), start=1):
            middle = ((x1 + x2) / 2 * shown.width, (y1 + y2) / 2 * shown.height)
            brush.text(middle, str(number), fill="white", font=font, anchor="mm", stroke_width=3, stroke_fill="black")
    return np.asarray(shown)
