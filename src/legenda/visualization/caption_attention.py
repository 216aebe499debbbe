"""Where each word of a caption looked: read off a search, and drawn as a sheet for each picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from legenda.decoding import Decoded
from legenda.errors import UserError
from legenda.io import atomic_write
from legenda.regions import Regions
from legenda.text import Vocabulary
from legenda.visualization.overlay import average_heads, draw_words, stack_sheets


@dataclass(frozen=True, eq=False)
class CaptionAttention:
    """One caption, word by word.

    score: the sum of its log-probabilities under the model, in nats. heads: `(T, H, N)`, the weights of T words in H
    heads over N regions. boxes: those regions `(N, 4)` as x1 y1 x2 y2 in 0..1, `(0, 4)` where they have no place.
    """

    words: tuple[str, ...]
    score: float
    heads: np.ndarray
    boxes: np.ndarray

    @property
    def placed(self) -> bool:
        """Whether the regions have boxes, so that the weights can be shown."""
        return len(self.boxes) > 0

    @property
    def attention(self) -> np.ndarray | None:
        """The weights `(T, N)` of all heads averaged; None where the regions have no boxes."""
        return average_heads(self.heads) if self.placed else None


def extract_attention(decoded: Decoded, regions: Regions, vocabulary: Vocabulary, row: int) -> list[CaptionAttention]:
    """The captions of image `row`, decoded with attention; fewer than were asked for where no more exist."""
    assert decoded.attention is not None
    real = regions.mask_or_ones[row]
    boxes = np.zeros((0, 4)) if regions.boxes is None else regions.boxes[row][real].float().cpu().numpy()
    found = []
    for place, tokens in enumerate(decoded.tokens[row].tolist()):
        if not torch.isfinite(decoded.scores[row, place]):
            continue
        words = tuple(vocabulary.decode(tokens).split())
        weights = decoded.attention[row, place, : len(words)][..., real].float().cpu().numpy()
        found.append(CaptionAttention(words, float(decoded.log_probs[row, place].sum()), weights, boxes))
    return found


def draw_caption_attention(
    picture: Image.Image, captions: Sequence[CaptionAttention], *, title: str, head: int | None = None, side: int = 240
) -> Image.Image:
    """The sheets of a picture's captions below each other, a tile a word.

    title: what stands above each, before its caption; head: the one that is drawn, None for the mean of all; side: the
    longer side of a tile in pixels. Raises UserError for regions without boxes, and for a head that is not there.
    """
    sheets = []
    for caption in captions:
        if not caption.placed:
            raise UserError(f"the regions of {title} have no boxes, so its attention has no place in a picture")
        weights = average_heads(caption.heads, head)
        heading = f"{title}: {' '.join(caption.words)}" + ("" if head is None else f" (head {head})")
        sheets.append(draw_words(picture, caption.boxes, caption.words, weights, title=heading, side=side))
    return stack_sheets(sheets)


def file_name(name: str) -> str:
    """A name without the signs that file systems may not take."""
    return "".join(sign if sign.isalnum() or sign in "-_." else "_" for sign in name)


def write_sheet(sheet: Image.Image, folder: Path, name: str) -> Path:
    """Writes a sheet as PNG under a name that may hold any sign; says where."""
    path = folder / f"{file_name(name)}.png"
    with atomic_write(path) as partial:
        sheet.save(partial, format="PNG")
    return path
