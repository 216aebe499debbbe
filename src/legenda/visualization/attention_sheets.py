"""Files with the attention of each generated word: a PNG for each image, one tile a word."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from legenda.decoding import GenerationOutput
from legenda.pipeline import ImageFile, extract_captions
from legenda.regions import Regions
from legenda.text import Vocabulary
from legenda.visualization.caption_attention import (
    draw_caption_attention,
    safe_file_name,
    write_sheet,
)


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
