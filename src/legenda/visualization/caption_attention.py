"""Attention weights of generated captions: extracted from a search, and drawn as one sheet for each image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from legenda.datasets.captions import CaptionDataset
from legenda.decoding import GenerationOutput
from legenda.errors import ConfigError, DataError
from legenda.evaluation.generate import generate
from legenda.evaluation.progress import ProgressBar, no_progress_bar
from legenda.evaluation.runs import CaptionerRun
from legenda.io import atomic_write
from legenda.regions import Regions
from legenda.text import Vocabulary
from legenda.visualization.overlay import average_heads, draw_words, stack_sheets


@dataclass(frozen=True, eq=False)
class CaptionAttention:
    """A generated caption with its attention weights.

    log_prob: the sum of the log-probabilities of its tokens, in nats. heads: `(T, H, N)`, the weights of T words in H
    heads over N regions. boxes: those regions `(N, 4)`, x1 y1 x2 y2 in 0..1; `(0, 4)` where they have no boxes.
    """

    words: tuple[str, ...]
    log_prob: float
    heads: np.ndarray
    boxes: np.ndarray

    @property
    def text(self) -> str:
        """The caption, its words joined by spaces."""
        return " ".join(self.words)

    @property
    def has_boxes(self) -> bool:
        """Whether the regions have boxes, so that the weights can be drawn."""
        return len(self.boxes) > 0

    @property
    def attention(self) -> np.ndarray | None:
        """The weights `(T, N)` averaged over heads; None where the regions have no boxes."""
        return average_heads(self.heads) if self.has_boxes else None


def extract_attention(
    output: GenerationOutput, regions: Regions, vocabulary: Vocabulary, image: int
) -> list[CaptionAttention]:
    """Return the captions of one image of a batch, generated with attention; without rows of infinite score."""
    assert output.attention is not None
    real = regions.mask_or_ones[image]
    boxes = np.zeros((0, 4)) if regions.boxes is None else regions.boxes[image][real].float().cpu().numpy()
    captions = []
    for row, tokens in enumerate(output.tokens[image].tolist()):
        if not torch.isfinite(output.scores[image, row]):
            continue
        words = tuple(vocabulary.decode(tokens).split())
        weights = output.attention[image, row, : len(words)][..., real].float().cpu().numpy()
        captions.append(CaptionAttention(words, float(output.log_probs[image, row].sum()), weights, boxes))
    return captions


def predict_with_attention(
    run: CaptionerRun,
    split: CaptionDataset,
    beam_size: int,
    *,
    positions: Sequence[int] | None = None,
    progress_bar: ProgressBar = no_progress_bar,
) -> dict[str, CaptionAttention]:
    """Return the best caption of each image with its attention, by id; one beam search for each image.

    positions: those of the images in the split, by default all. The weights stay in memory: about 20 kB for a caption
    of 12 words, 8 heads and 50 regions.
    """
    vocabulary = run.model.vocabulary
    assert vocabulary is not None  # every run folder has one
    captions: dict[str, CaptionAttention] = {}

    def keep(batch: np.ndarray, regions: Regions, output: GenerationOutput) -> None:
        for image, position in enumerate(batch.tolist()):
            captions[split.ids[position]] = extract_attention(output, regions, vocabulary, image)[0]

    chosen = None if positions is None else np.asarray(positions, dtype=np.int64)
    generate(run, split, beam_size, positions=chosen, attention_callback=keep, progress_bar=progress_bar)
    return captions


@torch.no_grad()
def check_head(run: CaptionerRun, split: CaptionDataset, head: int) -> None:
    """Raise ConfigError where the attention of the run's decoder has no such head; one decoding step, no search."""
    model = run.model.eval()
    device = next(model.parameters()).device
    memory = model.decoder.precompute_cross_kv(model.encode(split.read(np.array([0])).to(device)))
    tokens = torch.full((1, 1), model.generation_config.bos_token_id, device=device)
    _, state = model.decoder.step(tokens, model.decoder.init_state(memory, 1), memory)
    assert state.attention is not None
    try:
        average_heads(state.attention[0].cpu().numpy(), head)
    except ConfigError as error:
        raise ConfigError(f"{run.folder}: {error}") from error


def draw_caption_attention(
    image: Image.Image, captions: Sequence[CaptionAttention], *, title: str, head: int | None = None, side: int = 240
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
    return stack_sheets(sheets)


def safe_file_name(name: str) -> str:
    """Return the name with characters replaced that file systems may not accept."""
    return "".join(character if character.isalnum() or character in "-_." else "_" for character in name)


def write_sheet(sheet: Image.Image, folder: Path, name: str) -> Path:
    """Write a sheet as PNG into the folder and return its path; `name` may hold any character."""
    path = folder / f"{safe_file_name(name)}.png"
    with atomic_write(path) as partial:
        sheet.save(partial, format="PNG")
    return path
