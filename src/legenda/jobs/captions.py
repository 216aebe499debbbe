"""Captions of the images of a job."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from legenda.compute import Precision, SearchOptions
from legenda.jobs.shards import ImageResult, failure
from legenda.models.checkpoint import is_of_transformers
from legenda.models.weights import read_checksum
from legenda.run_folder import CONFIG, VOCABULARY, WEIGHTS

if TYPE_CHECKING:
    from legenda.pipeline import Pipeline


@dataclass(frozen=True)
class CaptionTask:
    """Captions images; all is in the lines."""

    pipeline: Pipeline
    search: SearchOptions
    num_captions: int = 1
    batch_size: int = 16

    def process(self, names: Sequence[str], folder: Path) -> Iterator[ImageResult]:
        """Yield the captions of each image, or the error."""
        from legenda.pipeline import json_entry

        for result in self.pipeline.caption_files(
            names, self.search, folder=folder, num_captions=self.num_captions, batch_size=self.batch_size
        ):
            if result.error is None:
                yield ImageResult(json_entry(result))
            else:
                yield failure(result.image, result.error)

    def save(self, results: Sequence[ImageResult], path: Path) -> None:
        """Write no other file."""


@dataclass(frozen=True, kw_only=True)
class CaptionWork:
    """What workers caption with; options: further arguments of `legenda.open`."""

    model: Path
    extractor: str | None
    device: str
    precision: Precision
    search: SearchOptions
    num_captions: int
    batch_size: int
    options: Mapping[str, Any]

    def load(self, device: str) -> CaptionTask:
        """Load the model."""
        from legenda.pipeline import open as open_pipeline

        pipeline = open_pipeline(self.model, self.extractor, device, self.precision, **self.options)
        return CaptionTask(pipeline, self.search, self.num_captions, self.batch_size)


def fingerprint(run: Path) -> str:
    """Return the SHA-256 of a run's configuration and vocabulary, and of the checksum that its weights have."""
    if is_of_transformers(run):
        return str(run)
    digest = hashlib.sha256(read_checksum(run / WEIGHTS).encode())
    for path in (run / CONFIG, run / VOCABULARY):
        if path.is_file():
            digest.update(path.name.encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()
