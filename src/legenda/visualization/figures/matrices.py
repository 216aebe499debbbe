"""Square matrices of regions, one for each head (MD-SAN, Figures 3 and 4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageDraw, ImageFont, ImageOps

from legenda.errors import DataError
from legenda.visualization.figures.image_grid import Block, Row, Tile, draw_image_grid
from legenda.visualization.overlay import MAX_OUTLINES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SIDE = 300
_HEADS = 8


@dataclass(frozen=True)
class WeightMatrices:
    """The matrices of H heads of one model, `(H, N, N)`, where row i has the weights of query region i."""

    heading: str
    matrices: np.ndarray
    heads: Sequence[str]
    boxes: np.ndarray | None = None
    """The boxes of the regions, `(N, 4)` in 0..1; if they are few, they are numbered in the image."""


@dataclass(frozen=True)
class ImageMatrices:
    """The matrices of several models, and their image if it is to be drawn."""

    title: str
    image: Image.Image | None
    models: Sequence[WeightMatrices]


def draw_matrices(images: Sequence[ImageMatrices], *, title: str, footnote: str) -> Figure:
    """Draw a row of matrices for each model, each with its own color scale, whose range is given below it.

    Raise DataError where matrices are not square, not finite, or their number differs from that of the heads.
    """
    blocks = []
    for entry in images:
        rows = []
        for number, model in enumerate(entry.models):
            matrices = np.asarray(model.matrices, dtype=float)
            square = matrices.ndim == 3 and matrices.shape[1] == matrices.shape[2]
            if not square or len(matrices) != len(model.heads) or not np.isfinite(matrices).all():
                raise DataError(
                    f"{model.heading} needs a finite square matrix for each of {len(model.heads)} heads, not "
                    f"{matrices.shape}"
                )
            tiles = [
                Tile(matrix, head, f"{_format(matrix.min())} to {_format(matrix.max())}")
                for matrix, head in zip(matrices, model.heads, strict=True)
            ]
            if entry.image is not None:
                tiles.insert(0, Tile(_number_regions(entry.image, model.boxes), "image"))
            rows.append(Row(f"({chr(97 + number)}) {model.heading}", tiles))
        blocks.append(Block(entry.title, rows))
    with_image = any(entry.image is not None for entry in images)
    return draw_image_grid(blocks, title=title, footnote=footnote, columns=_HEADS + with_image)


def _format(number: float) -> str:
    return "~0" if 0 < number < 1e-4 else f"{number:.2g}"


def _number_regions(image: Image.Image, boxes: np.ndarray | None) -> np.ndarray:
    """Return the image with the regions numbered from 1, unless there are too many."""
    pixels = ImageOps.contain(image.convert("RGB"), (_SIDE, _SIDE))
    if boxes is not None and len(boxes) <= MAX_OUTLINES:
        draw, font = ImageDraw.Draw(pixels), ImageFont.load_default(26)
        for number, (x1, y1, x2, y2) in enumerate(boxes.tolist(), start=1):
            middle = ((x1 + x2) / 2 * pixels.width, (y1 + y2) / 2 * pixels.height)
            draw.text(middle, str(number), fill="white", font=font, anchor="mm", stroke_width=3, stroke_fill="black")
    return np.asarray(pixels)
