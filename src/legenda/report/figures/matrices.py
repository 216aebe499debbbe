"""Square matrices of regions, one for each head (MD-SAN, Figures 3 and 4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw, ImageFont, ImageOps

from legenda.errors import DataError
from legenda.report.figures.image_grid import Row, Tile
from legenda.report.overlay import MAX_OUTLINES

_SIDE = 300


@dataclass(frozen=True)
class WeightMatrices:
    """The matrices of H heads of one model, `(H, N, N)`, where row i has the weights of query region i."""

    heading: str
    matrices: np.ndarray
    heads: Sequence[str]
    boxes: np.ndarray | None = None
    """The boxes of the regions, `(N, 4)` in 0..1; if they are few, they are numbered in the image."""


def matrix_rows(models: Sequence[WeightMatrices], image: Image.Image | None = None) -> list[Row]:
    """Return a row of matrices for each model, after the image if there is one; the range is given below each matrix.

    Raise DataError where matrices are not square, not finite, or their number differs from that of the heads.
    """
    rows = []
    for number, model in enumerate(models):
        matrices = np.asarray(model.matrices, dtype=float)
        square = matrices.ndim == 3 and matrices.shape[1] == matrices.shape[2]
        if not square or len(matrices) != len(model.heads) or not np.isfinite(matrices).all():
            raise DataError(
                f"{model.heading} needs a finite square matrix for each of {len(model.heads)} heads, not "
                f"{matrices.shape}"
            )
        tiles = [] if image is None else [Tile(_number_regions(image, model.boxes), "image")]
        tiles += [
            Tile(matrix, head, f"{_format(matrix.min())} to {_format(matrix.max())}")
            for matrix, head in zip(matrices, model.heads, strict=True)
        ]
        rows.append(Row(f"({chr(97 + number)}) {model.heading}", tiles))
    return rows


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
