"""Attention weights of generated captions: of a split, and drawn as one sheet for each image."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from legenda.data.captions import CaptionDataset
from legenda.decoding import GenerationOutput
from legenda.errors import ConfigError, DataError
from legenda.evaluation.generate import generate
from legenda.evaluation.runs import CaptionerRun
from legenda.extractors.image_files import ImageFile
from legenda.io import atomic_write
from legenda.models.eval_mode import eval_mode
from legenda.pipeline import GeneratedCaption, extract_captions
from legenda.regions import Regions
from legenda.report.overlay import average_heads, draw_words, stack_sheets
from legenda.search_options import SearchOptions
from legenda.terminal import ProgressBar, no_progress_bar
from legenda.text import Vocabulary


def predict_with_attention(
    run: CaptionerRun,
    split: CaptionDataset,
    beam_size: int,
    *,
    positions: Sequence[int] | None = None,
    progress_bar: ProgressBar = no_progress_bar,
) -> dict[str, GeneratedCaption]:
    """Return the best caption of each image with its attention, by id; one beam search for each image.

    positions: those of the images in the split, by default all. The weights stay in memory: about 20 kB for a caption
    of 12 words, 8 heads and 50 regions.
    """
    vocabulary = run.model.require_vocabulary()
    captions: dict[str, GeneratedCaption] = {}

    def keep(batch: np.ndarray, regions: Regions, output: GenerationOutput) -> None:
        for image, position in enumerate(batch.tolist()):
            captions[split.ids[position]] = extract_captions(output, regions, vocabulary, image)[0]

    chosen = None if positions is None else np.asarray(positions, dtype=np.int64)
    generate(
        run,
        split,
        SearchOptions(beam_size=beam_size),
        positions=chosen,
        attention_callback=keep,
        progress_bar=progress_bar,
    )
    return captions


def check_head(run: CaptionerRun, split: CaptionDataset, head: int) -> None:
    """Raise ConfigError where the attention of the run's decoder has no such head; one decoding step, no search."""
    model = run.model
    with eval_mode(model):
        memory = model.encode(split.read(np.array([0])).to(model.device))
        tokens = torch.full((1, 1), model.generation_config.bos_token_id, device=model.device)
        _, state = model.decoder.step(tokens, model.decoder.init_state(memory, 1), memory)
    assert state.attention is not None
    try:
        average_heads(state.attention[0].float().cpu().numpy(), head)
    except ConfigError as error:
        raise ConfigError(f"{run.folder}: {error}") from error


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


@dataclass(frozen=True)
class AttentionSheets:
    """A callback of `Pipeline.caption_files` that writes the sheets of each batch to a folder.

    The sheet of a.jpg is a.jpg.png, that of a second a.jpg is a.jpg.2.png. head: the attention head to draw, from 0;
    None for the mean of all. Raise LegendaError where the features have no boxes or the model has no such head.
    """

    folder: Path
    vocabulary: Vocabulary
    head: int | None = None
    _written: Counter[str] = field(default_factory=Counter)

    def __call__(self, files: Sequence[ImageFile], regions: Regions, output: GenerationOutput) -> None:
        for index, file in enumerate(files):
            assert file.image is not None
            captions = extract_captions(output, regions, self.vocabulary, index)
            sheet = draw_caption_attention(file.image, captions, title=file.name, head=self.head)
            name = safe_file_name(file.path.name)
            self._written[name] += 1
            count = self._written[name]
            write_sheet(sheet, self.folder, name if count == 1 else f"{name}.{count}")
