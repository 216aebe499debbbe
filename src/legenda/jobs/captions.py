"""Captions of the images of a shard."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from legenda.evaluation.caption_formats import ImageCaptions, json_entry
from legenda.jobs.ray_engine import Work
from legenda.jobs.shards import ImageResult, failure
from legenda.search_options import SearchOptions

CaptionFiles = Callable[[Sequence[tuple[str, Path]]], Iterable[ImageCaptions]]
"""Returns captions, or an error, for each image, given by name and path."""


@dataclass(frozen=True)
class CaptionTask:
    """Captions the images of a shard; all is in its lines."""

    caption_files: CaptionFiles

    def process(self, files: Sequence[tuple[str, Path]]) -> Iterator[ImageResult]:
        """Yield the captions of each image, or the error."""
        for result in self.caption_files(files):
            if result.error is None:
                yield ImageResult(result.image, json_entry(result))
            else:
                yield failure(result.image, result.error)

    def save(self, results: Iterator[ImageResult], path: Path) -> None:  # noqa: ARG002 - no other file
        """Take all results, whose lines hold the captions."""
        deque(results, maxlen=0)


@dataclass(frozen=True, kw_only=True)
class CaptionWork(Work):
    """What a worker needs to caption shards; flags: further arguments of `legenda.open`."""

    run: Path
    extractor: str | None
    search: SearchOptions
    num_captions: int
    flags: Mapping[str, bool]

    def load(self) -> CaptionTask:
        """Load the model."""
        from legenda.pipeline import open as open_pipeline

        pipeline = open_pipeline(self.run, self.extractor, self.device, self.precision, **self.flags)
        options = {"num_captions": self.num_captions, "batch_size": self.batch_size}
        return CaptionTask(partial(pipeline.caption_files, options=self.search, **options))
