"""Attention as pictures: regions outlined and grid cells shaded by their weights, the strongest one in red."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from legenda.errors import UserError

MOST_OUTLINES = 16
"""With more regions, outlines would hide the picture and shade alone tells them apart."""

_SHADE, _DARK = (11, 13, 18), 0.72
_RED, _WHITE, _PAPER, _INK, _FAINT = (224, 0, 43), (255, 255, 255), (250, 249, 246), (29, 31, 36), (196, 193, 185)
_MARGIN = 10


def average_heads(attention: np.ndarray, head: int | None = None) -> np.ndarray:
    """The weights `(T, N)` of T words: those of one head of `(T, H, N)`, or the mean over all.

    Raises UserError for another shape, and for a head that is not there.
    """
    if attention.ndim != 3:
        raise UserError(f"attention needs the shape (words, heads, regions), not {attention.shape}")
    heads = attention.shape[1]
    if head is None:
        return attention.mean(axis=1)
    if not 0 <= head < heads:
        raise UserError(f"there is no head {head}; choose from 0 to {heads - 1}, or leave it out for their mean")
    return attention[:, head]


def draw_overlay(
    picture: Image.Image, boxes: Sequence[Sequence[float]] | np.ndarray, weights: Sequence[float] | np.ndarray
) -> Image.Image:
    """One word's attention over a picture, RGB of the same size.

    boxes: `(N, 4)` as x1 y1 x2 y2 in 0..1 of the picture; weights: `(N,)`, not negative. The picture darkens where the
    weight is small beside the largest; up to MOST_OUTLINES regions are outlined; the strongest is red and carries its
    weight. Weights that are all 0 leave the picture as it is.

    Raises UserError when the shapes disagree or a weight is negative or not finite.
    """
    places, shares = np.asarray(boxes, dtype=float).reshape(-1, 4), np.asarray(weights, dtype=float)
    if shares.shape != (len(places),):
        raise UserError(f"{len(places)} boxes need as many weights, not the shape {shares.shape}")
    if not (np.isfinite(shares).all() and (shares >= 0).all()):
        raise UserError("attention has a negative or not finite weight; give weights of 0 or more")
    picture = picture.convert("RGB")
    if not shares.any():
        return picture
    best, largest = int(shares.argmax()), float(shares.max())
    shares = shares / largest
    corners = _pixels(places, picture)

    light = np.zeros((picture.height, picture.width))
    for (x1, y1, x2, y2), share in zip(corners, shares, strict=True):
        window = light[y1 : y2 + 1, x1 : x2 + 1]
        # what two regions share is at least as light as in each alone
        window[...] = 1 - (1 - window) * (1 - share)
    dark = Image.fromarray(((1 - light) * _DARK * 255).round().astype(np.uint8))
    shown = Image.composite(Image.new("RGB", picture.size, _SHADE), picture, dark)

    brush = ImageDraw.Draw(shown, "RGBA")
    line = max(1, round(min(picture.size) / 250))
    if len(corners) <= MOST_OUTLINES:
        for corner, share in zip(corners, shares, strict=True):
            brush.rectangle(corner, outline=(*_WHITE, round(255 * (0.15 + 0.85 * share))), width=line)
    x1, y1, x2, y2 = corners[best]
    for around, width, colour in ((3 * line, line, _WHITE), (2 * line, 2 * line, _RED)):  # around it, not over it
        brush.rectangle((x1 - around, y1 - around, x2 + around, y2 + around), outline=colour, width=width)
    _label(brush, corners[best], f"{largest:.2f}", picture.size)
    return shown


def draw_words(
    picture: Image.Image,
    boxes: Sequence[Sequence[float]] | np.ndarray,
    words: Sequence[str],
    attention: np.ndarray,
    *,
    title: str = "",
    side: int = 240,
    columns: int = 5,
) -> Image.Image:
    """A sheet of the picture and, for each of T words, the same with the word's attention over it.

    attention: `(T, N)`, see `average_heads`. side: the longer side of each picture in pixels; columns: how many stand
    beside each other. Raises UserError as `draw_overlay` does, and when words and attention differ in number.
    """
    if len(words) != len(attention):
        raise UserError(f"{len(words)} words need as many rows of attention, not {len(attention)}")
    small = _fitted(picture.convert("RGB"), side)
    tiles = [small, *(draw_overlay(small, boxes, weights) for weights in attention)]
    width, height = small.size
    font = ImageFont.load_default(16)
    line = 26
    columns = min(columns, len(tiles))
    rows = math.ceil(len(tiles) / columns)
    head = line + _MARGIN if title else 0
    size = (columns * (width + _MARGIN) + _MARGIN, rows * (height + line + _MARGIN) + _MARGIN + head)
    sheet = Image.new("RGB", size, _PAPER)
    brush = ImageDraw.Draw(sheet)
    brush.text((_MARGIN, _MARGIN), _shortened(title, font, size[0] - 2 * _MARGIN), fill=_INK, font=font)
    for place, (tile, word) in enumerate(zip(tiles, ("", *words), strict=True)):
        left = _MARGIN + place % columns * (width + _MARGIN)
        top = head + _MARGIN + place // columns * (height + line + _MARGIN)
        sheet.paste(tile, (left, top))
        middle = (left + width / 2, top + height + line / 2)
        brush.text(middle, _shortened(word, font, width), fill=_INK, font=font, anchor="mm")
    return sheet


def stack_sheets(sheets: Sequence[Image.Image]) -> Image.Image:
    """Sheets of `draw_words` below each other, on paper as wide as the widest; UserError where there is none."""
    if not sheets:
        raise UserError("there is no sheet to stack; give at least one")
    width, height = max(sheet.width for sheet in sheets), sum(sheet.height for sheet in sheets)
    stacked = Image.new("RGB", (width, height), _PAPER)
    top = 0
    for sheet in sheets:
        stacked.paste(sheet, (0, top))
        top += sheet.height
    return stacked


def blank_canvas(boxes: Sequence[Sequence[float]] | np.ndarray, *, size: tuple[int, int] = (384, 288)) -> Image.Image:
    """Regions without their picture: faint outlines on paper."""
    canvas = Image.new("RGB", size, _PAPER)
    brush = ImageDraw.Draw(canvas)
    for corner in _pixels(np.asarray(boxes, dtype=float).reshape(-1, 4), canvas):
        brush.rectangle(corner, outline=_FAINT)
    return canvas


def _pixels(boxes: np.ndarray, picture: Image.Image) -> list[tuple[int, int, int, int]]:
    """The first and last column and row of each box, at least one of either."""
    edges = np.array([picture.width, picture.height] * 2)
    corners = (boxes.clip(0, 1) * edges).round().astype(int)
    first = np.minimum(corners[:, :2], edges[:2] - 1)
    last = np.maximum(corners[:, 2:] - 1, first)
    return [(x1, y1, x2, y2) for (x1, y1), (x2, y2) in zip(first.tolist(), last.tolist(), strict=True)]


def _fitted(picture: Image.Image, side: int) -> Image.Image:
    scale = side / max(picture.size)
    return picture.resize((max(1, round(picture.width * scale)), max(1, round(picture.height * scale))))


def _label(brush: ImageDraw.ImageDraw, box: tuple[int, int, int, int], text: str, size: tuple[int, int]) -> None:
    """The weight in red, above the box, else below it, else inside."""
    font = ImageFont.load_default(max(11, round(min(size) / 18)))
    _, _, wide, high = brush.textbbox((0, 0), text, font=font)
    wide, high = int(wide) + 6, int(high) + 4
    left = max(0, min(box[0], size[0] - wide))
    gap = max(3, min(size) // 80)
    above, below = box[1] - high - gap, box[3] + 1 + gap
    top = above if above >= 0 else below if below + high <= size[1] else box[1]
    brush.rectangle((left, top, left + wide, top + high), fill=_RED)
    brush.text((left + 3, top + 1), text, fill=_WHITE, font=font)


def _shortened(text: str, font: ImageFont.FreeTypeFont | ImageFont.ImageFont, width: float) -> str:
    if font.getlength(text) <= width:
        return text
    while text and font.getlength(f"{text}...") > width:
        text = text[:-1]
    return f"{text}..."
