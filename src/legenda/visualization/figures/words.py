"""Captions word by word, each word with the picture it was read from (AoANet, Figure 8; X-LAN, 5; MD-SAN, 4 and 7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from PIL import Image, ImageDraw, ImageOps
from scipy.ndimage import gaussian_filter

from legenda.errors import UserError
from legenda.visualization.figures.canvas import load_matplotlib
from legenda.visualization.figures.image_grid import Block, Row, Tile, draw_image_grid
from legenda.visualization.overlay import draw_overlay

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Style = Literal["regions", "heat"]

_SIDES: dict[Style, int] = {"regions": 200, "heat": 300}
"""Pixels of a tile's longer side; with fewer, outlines and their numbers stand out more."""
_BLUR = 0.035
"""How far heat spreads, in sides of the picture."""
_HEAT = "inferno"
_COLUMNS = 11
_MARK = (0, 114, 178)


@dataclass(frozen=True)
class CaptionRow:
    """What one model said: for each of T words its weights `(T, N)` over the boxes `(N, 4)`, in 0..1 of the picture."""

    name: str
    words: Sequence[str]
    attention: np.ndarray
    boxes: np.ndarray
    remark: str = ""
    marked: int | None = None
    """A region, counted from 0, that is outlined in every tile: where the look comes from."""


@dataclass(frozen=True)
class ImageCaptions:
    """One picture and what the models said of it."""

    title: str
    image: Image.Image
    spoken: Sequence[CaptionRow]


def draw_word_rows(
    pictures: Sequence[ImageCaptions], *, title: str, footnote: str, style: Style, joined: bool = True
) -> Figure:
    """For each picture and model a row: the picture, and for each word the same with the word's attention over it.

    style: "regions" darkens what a word did not look at and outlines the strongest region in red with its weight;
    "heat" lays colours over a grey picture, the brightest where most attention lies, and tells the largest weight.
    joined: whether the words are those of a sentence, which then stands over its row.
    Raises UserError where words, weights and boxes do not fit each other.
    """
    blocks = []
    for picture in pictures:
        side = _SIDES[style]
        image = ImageOps.contain(picture.image.convert("RGB"), (side, side))
        rows = []
        for number, spoken in enumerate(picture.spoken):
            if spoken.attention.shape != (len(spoken.words), len(spoken.boxes)):
                raise UserError(
                    f"{spoken.name}: {len(spoken.words)} words and {len(spoken.boxes)} boxes need as much attention, "
                    f"not {spoken.attention.shape}"
                )
            told = " ".join(spoken.words) if joined else ""
            heading = f"({chr(97 + number)}) {spoken.name}{': ' if told else ''}{told}"
            heading += f" ({spoken.remark})" if spoken.remark else ""
            tiles = [Tile(np.asarray(image), "picture")]
            tiles += [
                _tile(image, spoken.boxes, word, weights, style)
                for word, weights in zip(spoken.words, spoken.attention, strict=True)
            ]
            if spoken.marked is not None:
                tiles = [_outlined(tile, spoken.boxes[spoken.marked]) for tile in tiles]
            rows.append(Row(heading, tiles))
        blocks.append(Block(picture.title, rows))
    return draw_image_grid(blocks, title=title, footnote=footnote, columns=_COLUMNS)


def attention_heatmap(boxes: np.ndarray, weights: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """The weights as heat `(height, width)` in 0..1: what covers a pixel adds up, and is spread a little."""
    heat = np.zeros((size[1], size[0]))
    edges = np.rint(np.clip(boxes, 0, 1) * np.array([*size, *size])).astype(int)
    for (x1, y1, x2, y2), weight in zip(edges, weights, strict=True):
        heat[y1 : max(y2, y1 + 1), x1 : max(x2, x1 + 1)] += weight
    if not heat.any():
        return heat
    spread = gaussian_filter(heat, _BLUR * max(size), mode="nearest")
    return spread / spread.max()


def _tile(image: Image.Image, boxes: np.ndarray, word: str, weights: np.ndarray, style: Style) -> Tile:
    if style == "regions":
        return Tile(np.asarray(draw_overlay(image, boxes, weights)), word)
    heat = attention_heatmap(boxes, weights, image.size)[..., None]
    grey = np.asarray(image.convert("L"), dtype=float)[..., None]
    colours = load_matplotlib().colormaps[_HEAT](heat[..., 0])[..., :3] * 255
    share = 0.85 * np.sqrt(heat)
    return Tile(((1 - share) * grey + share * colours).round().astype(np.uint8), word, f"{weights.max():.2f}")


def _outlined(tile: Tile, box: np.ndarray) -> Tile:
    """The tile with a blue and white line around a box."""
    shown = Image.fromarray(tile.pixels)
    brush = ImageDraw.Draw(shown)
    x1, y1, x2, y2 = np.rint(np.clip(box, 0, 1) * np.array([*shown.size, *shown.size]) - [0, 0, 1, 1]).tolist()
    brush.rectangle((x1, y1, x2, y2), outline=(255, 255, 255), width=6)
    brush.rectangle((x1 + 1, y1 + 1, x2 - 1, y2 - 1), outline=_MARK, width=4)
    return replace(tile, pixels=np.asarray(shown))
