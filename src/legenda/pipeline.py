"""From image files to captions: read an image, extract its regions, search, decode."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from legenda.decoding import GenerationOutput, beam_search
from legenda.errors import CheckpointError, LegendaError
from legenda.evaluation.caption_formats import ImageCaptions
from legenda.evaluation.runs import load_captioner_run
from legenda.extractors import Extractor, read_image, run_extractor
from legenda.models import Captioner
from legenda.models.eval_mode import eval_mode
from legenda.regions import Regions


@dataclass
class ImageFile:
    """An image on the way to its captions.

    name: what messages and outputs call it; path: its file. `image` and `regions` are None where `error` is a message.
    """

    name: str
    path: Path
    image: Image.Image | None = None
    regions: Regions | None = None
    error: str | None = None

    def fail(self, error: LegendaError) -> None:
        """Keep the message of an error, which names the image by its name."""
        message = str(error)
        named = message if str(self.path) in message else f"{self.path}: {message}"
        self.error = named.replace(str(self.path), self.name)


BatchCallback = Callable[[Sequence[ImageFile], Regions, GenerationOutput], None]
"""Receives the images of a batch, their regions `(B, N, D)` and the generated output with attention."""


@dataclass(frozen=True)
class Pipeline:
    """A captioner with the extractor of its features."""

    model: Captioner
    extractor: Extractor

    @classmethod
    def from_run(cls, folder: str | Path, extractor: str | None = None) -> Pipeline:
        """Return the pipeline of a run folder.

        extractor: file or name; not needed where the run's extractor is built in or can be downloaded. Raise
        LegendaError where the folder is damaged, or the extractor is missing or is not the one of the training.
        """
        run = load_captioner_run(folder)
        return cls(run.model, run.resolve_extractor(extractor))

    def caption_files(
        self,
        files: Sequence[tuple[str, Path]],
        *,
        beam_size: int = 3,
        num_captions: int = 1,
        batch_size: int = 16,
        progress: Callable[[int, int], None] | None = None,
        callback: BatchCallback | None = None,
    ) -> Iterator[ImageCaptions]:
        """Yield the captions of each image, in order, or the error for one that cannot be read or extracted.

        files: name and path of each image. An image on which the extractor fails does not affect its batch. progress:
        called with the number of images done and in total. callback: called after each batch; attention is computed
        only for it.
        """
        vocabulary = self.model.vocabulary
        if vocabulary is None:
            raise CheckpointError("this model has no vocabulary to decode tokens with; set model.vocabulary first")
        device = next(self.model.parameters()).device
        for start in range(0, len(files), batch_size):
            batch = [ImageFile(name, path) for name, path in files[start : start + batch_size]]
            self._read(batch)
            readable = [file for file in batch if file.regions is not None]
            found: dict[int, ImageCaptions] = {}
            if readable:
                regions = Regions.stack([file.regions for file in readable if file.regions is not None]).to(device)
                with eval_mode(self.model):
                    output = beam_search(
                        self.model,
                        regions,
                        beam_size=beam_size,
                        num_return_sequences=num_captions,
                        need_attention=callback is not None,
                    )
                if callback is not None:
                    callback(readable, regions, output)
                for index, file in enumerate(readable):
                    hypotheses = zip(output.tokens[index].tolist(), output.scores[index].tolist(), strict=True)
                    captions = [(vocabulary.decode(ids), score) for ids, score in hypotheses if score > float("-inf")]
                    found[id(file)] = ImageCaptions(file.name, tuple(captions))
            for file in batch:
                yield found.get(id(file)) or ImageCaptions(file.name, error=file.error)
            if progress is not None:
                progress(start + len(batch), len(files))

    def _read(self, batch: Sequence[ImageFile]) -> None:
        """Read the images and extract their regions; where a batch fails, one image at a time."""
        for file in batch:
            try:
                file.image = read_image(file.path)
            except LegendaError as error:
                file.fail(error)
        readable = [file for file in batch if file.image is not None]
        if len(readable) > 1:
            with suppress(LegendaError):
                self._extract(readable)
                return
        for file in readable:
            try:
                self._extract([file])
            except LegendaError as error:
                file.fail(error)

    def _extract(self, batch: Sequence[ImageFile]) -> None:
        images = [file.image for file in batch if file.image is not None]
        extracted = run_extractor(self.extractor, images, [file.path for file in batch])
        for file, (features, boxes) in zip(batch, extracted, strict=True):
            file.regions = Regions.from_numpy(features, boxes)
