"""Captions word by word, each word with its attention over the image (AoANet, Figure 8; X-LAN, 5; MD-SAN, 4 and 7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from PIL import Image, ImageDraw, ImageOps
from scipy.ndimage import gaussian_filter

from legenda.errors import DataError
from legenda.report.figures.canvas import load_matplotlib
from legenda.report.figures.image_grid import Row, Tile
from legenda.report.overlay import draw_overlay

Style = Literal["regions", "heat"]

_SIDES: dict[Style, int] = {"regions": 200, "heat": 300}
"""Pixels of a tile's longer side; outlines and labels are larger relative to smaller tiles."""
_BLUR = 0.035
"""Standard deviation of the heatmap's blur, relative to the longer side of the image."""
_HEAT_COLORMAP = "inferno"
_MARK_COLOR = (0, 114, 178)


@dataclass(frozen=True)
class CaptionRow:
    """The caption of one model: weights `(T, N)` of T words over boxes `(N, 4)`, in 0..1 of the image."""

    name: str
    words: Sequence[str]
    attention: np.ndarray
    boxes: np.ndarray
    remark: str = ""
    marked: int | None = None
    """The index of a region to outline in every tile, such as the query region of self-attention."""


def word_rows(image: Image.Image, captions: Sequence[CaptionRow], style: Style, *, joined: bool = True) -> list[Row]:
    """Return a row for each caption of an image: the image, and the image with the attention of each word.

    style: "regions" darkens regions of small weight and outlines the one with the largest weight in red, labeled with
    it; "heat" draws a heatmap over the gray image, labeled with the largest weight. joined: whether the words form a
    sentence, which then precedes the row. Raise DataError where the shapes of words, weights and boxes disagree.
    """
    image = ImageOps.contain(image.convert("RGB"), (_SIDES[style], _SIDES[style]))
    rows = []
    for number, caption in enumerate(captions):
        if caption.attention.shape != (len(caption.words), len(caption.boxes)):
            raise DataError(
                f"{caption.name}: {len(caption.words)} words and {len(caption.boxes)} boxes need as much "
                f"attention, not {caption.attention.shape}"
            )
        text = f": {' '.join(caption.words)}" if joined and caption.words else ""
        remark = f" ({caption.remark})" if caption.remark else ""
        tiles = [Tile(np.asarray(image), "image")]
        tiles += [
            _tile(image, caption.boxes, word, weights, style)
            for word, weights in zip(caption.words, caption.attention, strict=True)
        ]
        if caption.marked is not None:
            tiles = [_mark(tile, caption.boxes[caption.marked]) for tile in tiles]
        rows.append(Row(f"({chr(97 + number)}) {caption.name}{text}{remark}", tiles))
    return rows


def attention_heatmap(boxes: np.ndarray, weights: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Return the weights as a heatmap `(height, width)` in 0..1: overlapping regions add up, then a blur."""
    heat = np.zeros((size[1], size[0]))
    edges = np.rint(np.clip(boxes, 0, 1) * np.array([*size, *size])).astype(int)
    for (x1, y1, x2, y2), weight in zip(edges, weights, strict=True):
        heat[y1 : max(y2, y1 + 1), x1 : max(x2, x1 + 1)] += weight
    if not heat.any():
        return heat
    blurred = gaussian_filter(heat, _BLUR * max(size), mode="nearest")
    return blurred / blurred.max()


def _tile(image: Image.Image, boxes: np.ndarray, word: str, weights: np.ndarray, style: Style) -> Tile:
    if style == "regions":
        return Tile(np.asarray(draw_overlay(image, boxes, weights)), word)
    heat = attention_heatmap(boxes, weights, image.size)[..., None]
    gray = np.asarray(image.convert("L"), dtype=float)[..., None]
    colors = load_matplotlib().colormaps[_HEAT_COLORMAP](heat[..., 0])[..., :3] * 255
    alpha = 0.85 * np.sqrt(heat)
    return Tile(((1 - alpha) * gray + alpha * colors).round().astype(np.uint8), word, f"{weights.max():.2f}")


def _mark(tile: Tile, box: np.ndarray) -> Tile:
    """Return the tile with a blue and white line around a box."""
    pixels = Image.fromarray(tile.pixels)
    draw = ImageDraw.Draw(pixels)
    x1, y1, x2, y2 = np.rint(np.clip(box, 0, 1) * np.array([*pixels.size, *pixels.size]) - [0, 0, 1, 1]).tolist()
    draw.rectangle((x1, y1, x2, y2), outline=(255, 255, 255), width=6)
    draw.rectangle((x1 + 1, y1 + 1, x2 - 1, y2 - 1), outline=_MARK_COLOR, width=4)
    return replace(tile, pixels=np.asarray(pixels))
