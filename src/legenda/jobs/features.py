"""Features of the images of a shard, or of the frames of its videos."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path

from legenda.compute import ComputeOptions
from legenda.data.features.base import find_unstorable
from legenda.data.features.packed import write_store
from legenda.errors import DataError
from legenda.extractors.base import Extractor, run_extractor
from legenda.extractors.image_files import ImageFile, extract_files
from legenda.extractors.images import check_ids, image_id
from legenda.extractors.registry import load_extractor
from legenda.extractors.video import FrameSampling, extract_video
from legenda.jobs.job import INDEX, Job
from legenda.jobs.listing import names_of_shard
from legenda.jobs.ray_engine import Work
from legenda.jobs.shards import ImageResult, failure


@dataclass(frozen=True)
class FeatureTask:
    """Extracts features into one store for each shard.

    identity: of the extractor, as stores hold it. sampling: of the frames of videos; None for images.
    """

    extractor: Extractor
    identity: str
    sampling: FrameSampling | None = None
    batch_size: int = 32

    def process(self, files: Sequence[tuple[str, Path]]) -> Iterator[ImageResult]:
        """Yield the regions of each image or video, or the error."""
        batch = [ImageFile(*file) for file in files]
        if self.sampling is None:
            extract_files(batch, partial(run_extractor, self.extractor))
        else:
            for file in batch:
                try:
                    file.regions = extract_video(self.extractor, file.path, self.sampling, self.batch_size)
                except DataError as error:
                    file.fail(error)
        for file in batch:
            fault = file.error
            if file.regions is not None:
                reason = find_unstorable(file.regions[0])
                fault = reason and f"{file.name} has {reason}; correct the extractor or leave it out"
            if fault is not None or file.regions is None:
                yield failure(file.name, str(fault))
            else:
                yield ImageResult(file.name, {"image": file.name, "regions": len(file.regions[0])}, file.regions)

    def save(self, results: Iterator[ImageResult], path: Path) -> None:
        """Write the store of the shard, unless all its images failed."""
        stored = ((image_id(result.image), *result.regions) for result in results if result.regions is not None)
        first = next(stored, None)
        if first is not None:
            write_store(path, chain([first], stored), extractor=self.identity, sync=True)


@dataclass(frozen=True, kw_only=True)
class FeatureWork(Work):
    """What a worker needs to extract shards."""

    extractor: str
    identity: str
    num_regions: int | None = None
    sampling: FrameSampling | None = None

    def load(self) -> FeatureTask:
        """Load the extractor."""
        compute = ComputeOptions(device=self.device, precision=self.precision)
        extractor = load_extractor(self.extractor, compute, self.num_regions)
        return FeatureTask(extractor, self.identity, self.sampling, self.batch_size)


def check_job_ids(job: Job) -> None:
    """Raise DataError where two images of the job would share an id."""
    check_ids(chain.from_iterable(names_of_shard(job.listing, job.folder / INDEX, n) for n in range(job.shards)))
