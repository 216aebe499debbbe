"""Attention drawn over images: regions outlined and grid cells shaded by weight, the largest weight in red.

A sheet has a tile for each word of a caption.
"""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont, ImageOps

from legenda.errors import ConfigError, DataError
from legenda.io import atomic_write, remove_leftovers
from legenda.pipeline import GeneratedCaption, ImageCaptions

__all__ = ["average_heads", "draw_overlay", "draw_words"]

MAX_OUTLINES = 16
"""With more regions, outlines would hide the image: only the shade shows them."""

_SHADE, _DARK = (11, 13, 18), 0.72
_RED, _WHITE, _PAPER, _INK, _FAINT = (224, 0, 43), (255, 255, 255), (250, 249, 246), (29, 31, 36), (196, 193, 185)
_COLORS = (
    (176, 32, 64),
    (0, 92, 168),
    (0, 112, 72),
    (120, 60, 150),
    (168, 84, 0),
    (0, 110, 120),
    (90, 90, 20),
    (60, 60, 70),
)
"""Grounds of the labels of things, dark enough for white text; those of one class are equal."""
_MARGIN = 10
_LONGEST = 1600
"""Pixels of the longer side of a drawing of boxes and of a panorama's tile, and of the width of a sheet of tiles."""
_LEGEND = "brightness: weight relative to the largest, which is red and labeled"
_WHOLE = 0.99
"""A region with a larger share of the image is the whole image: its weight has no position."""


def average_heads(attention: np.ndarray, head: int | None = None) -> np.ndarray:
    """Return weights `(T, N)` of T words from `(T, H, N)`: those of one head, or the mean over all.

    Raise ConfigError for an unknown head.
    """
    heads = attention.shape[1]
    if head is None:
        return attention.mean(axis=1)
    if not 0 <= head < heads:
        raise ConfigError(f"there is no head {head}; choose from 0 to {heads - 1}, or leave it out for their mean")
    return attention[:, head]


def draw_overlay(
    image: Image.Image, boxes: Sequence[Sequence[float]] | np.ndarray, weights: Sequence[float] | np.ndarray
) -> Image.Image:
    """Draw the attention of one word over an image and return RGB of the same size.

    boxes: `(N, 4)`, x1 y1 x2 y2 in 0..1 of the image; weights: `(N,)`, non-negative. The smaller a weight relative to
    the largest, the darker its region; up to MAX_OUTLINES regions are outlined; the region with the largest weight is
    red and labeled with it. Regions that are the whole image count only where all are. If all weights are 0 the image
    is returned unchanged.
    """
    boxes, weights = np.asarray(boxes, dtype=float).reshape(-1, 4), np.asarray(weights, dtype=float)
    image = image.convert("RGB")
    outlined = len(boxes) <= MAX_OUTLINES
    whole = (boxes[:, 2:] - boxes[:, :2]).prod(axis=1) > _WHOLE
    if not whole.all():
        boxes, weights = boxes[~whole], weights[~whole]
    if not weights.any():
        return image
    best, largest = int(weights.argmax()), float(weights.max())
    relative = weights / largest
    corners = _pixel_boxes(boxes, image)

    light = np.zeros((image.height, image.width))
    for (x1, y1, x2, y2), weight in zip(corners, relative, strict=True):
        window = light[y1 : y2 + 1, x1 : x2 + 1]
        # the overlap of two regions is at least as light as each of them
        window[...] = 1 - (1 - window) * (1 - weight)
    dark = Image.fromarray(((1 - light) * _DARK * 255).round().astype(np.uint8))
    overlay = Image.composite(Image.new("RGB", image.size, _SHADE), image, dark)

    draw = ImageDraw.Draw(overlay, "RGBA")
    line = max(1, round(min(image.size) / 250))
    if outlined:
        for corner, weight in zip(corners, relative, strict=True):
            draw.rectangle(corner, outline=(*_WHITE, round(255 * (0.15 + 0.85 * weight))), width=line)
    x1, y1, x2, y2 = corners[best]
    for margin, width, color in ((3 * line, line, _WHITE), (2 * line, 2 * line, _RED)):  # outside the region
        draw.rectangle((x1 - margin, y1 - margin, x2 + margin, y2 + margin), outline=color, width=width)
    _label(draw, corners[best], f"{largest:.2f}", image.size)
    return overlay


def draw_words(
    image: Image.Image,
    boxes: Sequence[Sequence[float]] | np.ndarray,
    words: Sequence[str],
    attention: np.ndarray,
    *,
    title: str = "",
    side: int = 240,
    columns: int = 5,
) -> Image.Image:
    """Draw a sheet with the image and, for each of T words, the image with the word's attention; a legend is below.

    attention: `(T, N)`, see `average_heads`. side: the longer side of each tile in pixels, more for panoramas, whose
    shorter side is at least a third of it; columns: the maximal number of tiles in a line.
    """
    longer, shorter = max(image.size), min(image.size)
    side = max(side, min(round(side / 3 * longer / shorter), _LONGEST))
    small = ImageOps.contain(image.convert("RGB"), (side, side))
    tiles = [small, *(draw_overlay(small, boxes, weights) for weights in attention)]
    width, height = small.size
    font = ImageFont.load_default(16)
    line = 26
    columns = min(columns, len(tiles), max(1, _LONGEST // width))
    rows = math.ceil(len(tiles) / columns)
    head = line + _MARGIN if title else 0
    size = (columns * (width + _MARGIN) + _MARGIN, rows * (height + line + _MARGIN) + line + head)
    sheet = Image.new("RGB", size, _PAPER)
    draw = ImageDraw.Draw(sheet)
    draw.text((_MARGIN, _MARGIN), _shorten(title, font, size[0] - 2 * _MARGIN), fill=_INK, font=font)
    for index, (tile, word) in enumerate(zip(tiles, ("", *words), strict=True)):
        left = _MARGIN + index % columns * (width + _MARGIN)
        top = head + _MARGIN + index // columns * (height + line + _MARGIN)
        sheet.paste(tile, (left, top))
        middle = (left + width / 2, top + height + line / 2)
        draw.text(middle, _shorten(word, font, width), fill=_INK, font=font, anchor="mm")
    note = ImageFont.load_default(13)
    draw.text((_MARGIN, size[1] - line), _shorten(_LEGEND, note, size[0] - 2 * _MARGIN), fill=_INK, font=note)
    return sheet


def draw_caption_attention(
    image: Image.Image, captions: Sequence[GeneratedCaption], *, title: str, head: int | None = None, side: int = 240
) -> Image.Image:
    """Draw one sheet for each caption, a tile for each word, and stack the sheets.

    title: precedes the caption above each sheet. head: the attention head to draw, by default their mean. side: the
    longer side of a tile in pixels. Raise DataError for regions without boxes, ConfigError for an unknown head.
    """
    sheets = []
    for caption in captions:
        if not caption.has_boxes:
            raise DataError(
                f"the regions of {title} have no boxes, so their attention cannot be drawn; use features with boxes"
            )
        weights = average_heads(caption.heads, head)
        heading = f"{title}: {caption.text}" + ("" if head is None else f" (head {head})")
        sheets.append(draw_words(image, caption.boxes, caption.words, weights, title=heading, side=side))
    stacked = Image.new("RGB", (max(sheet.width for sheet in sheets), sum(sheet.height for sheet in sheets)), _PAPER)
    top = 0
    for sheet in sheets:
        stacked.paste(sheet, (0, top))
        top += sheet.height
    return stacked


def _safe_file_name(name: str) -> str:
    """Return the name with characters replaced that file systems may not accept."""
    return "".join(character if character.isalnum() or character in "-_." else "_" for character in name)


def write_sheet(sheet: Image.Image, folder: Path, name: str) -> Path:
    """Write a sheet as PNG into the folder and return its path; `name` may hold any character."""
    path = folder / f"{_safe_file_name(name)}.png"
    with atomic_write(path) as partial:
        sheet.save(partial, format="PNG")
    return path


@dataclass(frozen=True)
class Sheets:
    """A folder of drawings, one for each captioned image: that of a.jpg is a.jpg.png, of a second a.jpg a.jpg.2.png.

    draw: returns the drawing of an image with its captions and pixels.
    """

    folder: Path
    draw: Callable[[ImageCaptions], Image.Image]
    _written: Counter[str] = field(default_factory=Counter)

    def write(self, result: ImageCaptions) -> None:
        """Write the drawing of an image; raise LegendaError where there is nothing to draw."""
        name = _safe_file_name(Path(result.image).name)
        sheet = self.draw(result)
        self._written[name] += 1
        count = self._written[name]
        remove_leftovers(write_sheet(sheet, self.folder, name if count == 1 else f"{name}.{count}"))


def attention_sheet(result: ImageCaptions, head: int | None = None) -> Image.Image:
    """Return the attention of the words of an image's captions; see `draw_caption_attention`."""
    assert result.pixels is not None
    return draw_caption_attention(result.pixels, result.captions, title=result.image, head=head)


def boxes_sheet(result: ImageCaptions) -> Image.Image:
    """Return an image with the things that were detected in it, or with its regions where the extractor names none.

    The drawing is as large as the image, at most _LONGEST pixels long. Raise DataError for regions without boxes.
    """
    assert result.pixels is not None
    caption = result.captions[0]
    if caption.things is None and not caption.has_boxes:
        raise DataError(f"the regions of {result.image} have no boxes that could be drawn; leave out --save-boxes")
    image = (
        ImageOps.contain(result.pixels.convert("RGB"), (_LONGEST, _LONGEST))
        if max(result.pixels.size) > _LONGEST
        else result.pixels.convert("RGB")
    )
    if caption.things is None:
        named = [("", "", box) for box in caption.boxes.tolist()]
    else:
        named = [(thing.label, f"{thing.label} {thing.score:.2f}", thing.box) for thing in reversed(caption.things)]
    draw, width = ImageDraw.Draw(image), max(2, round(min(image.size) / 200))
    for name, text, box in named:
        color = _COLORS[zlib.crc32(name.encode()) % len(_COLORS)] if name else _RED
        (corner,) = _pixel_boxes(np.array([box], float), image)
        draw.rectangle(corner, outline=color, width=width)
        if text:
            _label(draw, corner, text, image.size, color)
    return image


def blank_canvas(boxes: Sequence[Sequence[float]] | np.ndarray, *, size: tuple[int, int] = (384, 288)) -> Image.Image:
    """Return an image of the regions alone: faint outlines on a light ground."""
    canvas = Image.new("RGB", size, _PAPER)
    draw = ImageDraw.Draw(canvas)
    for corner in _pixel_boxes(np.asarray(boxes, dtype=float).reshape(-1, 4), canvas):
        draw.rectangle(corner, outline=_FAINT)
    return canvas


def _pixel_boxes(boxes: np.ndarray, image: Image.Image) -> list[tuple[int, int, int, int]]:
    """Return the first and last pixel column and row of each box, which has at least one pixel."""
    edges = np.array([image.width, image.height] * 2)
    corners = (boxes.clip(0, 1) * edges).round().astype(int)
    first = np.minimum(corners[:, :2], edges[:2] - 1)
    last = np.maximum(corners[:, 2:] - 1, first)
    return [(x1, y1, x2, y2) for (x1, y1), (x2, y2) in zip(first.tolist(), last.tolist(), strict=True)]


def _label(
    draw: ImageDraw.ImageDraw,
    box: tuple[int, int, int, int],
    text: str,
    size: tuple[int, int],
    color: tuple[int, int, int] = _RED,
) -> None:
    """Draw a text on a color above the box, else below it, else inside."""
    font = ImageFont.load_default(max(11, round(min(size) / (18 if color == _RED else 28))))
    _, _, text_width, text_height = draw.textbbox((0, 0), text, font=font)
    width, height = int(text_width) + 6, int(text_height) + 4
    left = max(0, min(box[0], size[0] - width))
    gap = max(3, min(size) // 80)
    above, below = box[1] - height - gap, box[3] + 1 + gap
    top = above if above >= 0 else below if below + height <= size[1] else box[1]
    draw.rectangle((left, top, left + width, top + height), fill=color)
    draw.text((left + 3, top + 1), text, fill=_WHITE, font=font)


def _shorten(text: str, font: ImageFont.FreeTypeFont | ImageFont.ImageFont, width: float) -> str:
    if font.getlength(text) <= width:
        return text
    while text and font.getlength(f"{text}...") > width:
        text = text[:-1]
    return f"{text}..."
