"""Features of any number of images or videos, by jobs: in one store, or in the shards of a folder."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from legenda.compute import ComputeOptions, Precision
from legenda.errors import ConfigError, DataError, LegendaError
from legenda.features.base import Image
from legenda.features.extractors import load_extractor
from legenda.features.packed import write_store
from legenda.features.readers import find_opener, open_features
from legenda.images.extractor import Extractor, ExtractorIdentity, FrameSampling, check_regions, identify
from legenda.images.files import ImageFile, check_ids, extract_batch, image_id, is_url, read_batches
from legenda.images.shards import ImageResult, Job, JobStats, digest_files, failure, open_job, process_here
from legenda.images.video import extract_video
from legenda.io import check_output, locked
from legenda.terminal import counted


@dataclass(frozen=True)
class FeatureTask:
    """Extracts features into one store for each shard.

    identity: the record that the stores hold. sampling: which frames of videos are taken; None for images. read: a
    function from names, the size of a batch and a folder to batches of images, in place of `read_batches`.
    """

    extractor: Extractor
    identity: ExtractorIdentity
    sampling: FrameSampling | None = None
    batch_size: int = 32
    read: Callable[[Sequence[str], int, Path], Iterator[list[ImageFile]]] | None = None

    def process(self, names: Sequence[str], folder: Path) -> Iterator[ImageResult]:
        """Yield the regions of each image or video, or the error."""
        if self.sampling is None:
            read = self.read or partial(read_batches, sufficient_side=self.extractor.sufficient_side)
            for batch in read(names, self.batch_size, folder):
                extract_batch(batch, self.extractor)
                yield from map(self._result, batch)
            return
        for file in (ImageFile(name, folder) for name in names):
            try:
                file.regions = extract_video(self.extractor, file.source, self.sampling, self.batch_size, file.name)
            except DataError as error:
                file.fail(error)
            yield self._result(file)

    def _result(self, file: ImageFile) -> ImageResult:
        if file.regions is None:
            return failure(file.name, str(file.error))
        try:
            regions = check_regions(*file.regions, np.dtype(np.float16))
        except ValueError as fault:
            return failure(file.name, f"{file.name} has {fault}; correct the extractor or leave it out")
        return ImageResult({"image": file.name, "regions": len(regions[0])}, regions)

    def save(self, results: Sequence[ImageResult], path: Path) -> None:
        """Write the store of a shard, unless all its images failed."""
        done = [result for result in results if result.content is not None]
        stored = [(image_id(str(result.line["image"])), *result.content) for result in done]
        if stored:
            write_store(path, stored, extractor=self.identity, sync=True)


def load_features(
    name: str, precision: Precision, num_regions: int | None, make: Callable[[Extractor], FeatureTask], device: str
) -> FeatureTask:
    """Return the task of workers with an extractor by name."""
    compute = ComputeOptions(device=device, precision=precision)
    return make(load_extractor(name, compute, num_regions))


@dataclass(frozen=True)
class ExtractionReport:
    """The result of an extraction into one file.

    images: how many the store holds; cached: how many of all images an earlier, stopped call had processed; skipped:
    the images without features, with the reason; seconds: the wall time.
    """

    images: int
    skipped: tuple[tuple[str, str], ...]
    seconds: float
    cached: int = 0


def extract_store(
    images: Sequence[str | Path],
    extractor: Extractor,
    out: str | Path,
    *,
    sampling: FrameSampling | None = None,
    batch_size: int = 32,
    shard_size: int = 1000,
    progress: Callable[[int, int], object] = lambda *_: None,
) -> ExtractionReport:
    """Run an extractor over images, or videos by a sampling of their frames, and write the feature store `out`.

    The id of an image is its file name without suffix. Images that cannot be read or extracted are skipped and
    reported. The store is the merge of the shards of a job in a hidden folder next to `out`, which is resumed when it
    is called again after a stop, and removed at the end; for a moment the disk holds both. shard_size: images that a
    stop may cost. progress: called with the number of images done and of all.
    Raise DataError when two images share an id or none has features; `out` is not written then. Raise ConfigError
    where the folder holds shards of other images, of images that have changed, or of another extractor.
    """
    for name, value in (("batch_size", batch_size), ("shard_size", shard_size)):
        if value < 1:
            raise ConfigError(f"{name} is {value}; it must be at least 1")
    task = FeatureTask(extractor, identify(extractor, sampling), sampling, batch_size)
    run = partial(process_here, task=task, progress=progress)
    return extract_file([*map(str, images)], task.identity, Path(out), run, shard_size=shard_size)


def extract_missing(images: Sequence[Path], load: Callable[[], Extractor], out: Path) -> None:
    """Add the images that a store lacks to it, or write it with all where it does not exist.

    load: returns the extractor. Raise DataError where the store was made by another extractor, and, naming some of
    them, for images that cannot be extracted; the store then has all other images.
    """
    check_ids(images)
    store = open_features(out) if out.exists() else None
    missing = [image for image in images if store is None or image_id(image) not in store]
    if not missing:
        return
    extractor = load()
    if store is None:
        report = extract_store(missing, extractor, out)
    else:
        identity = identify(extractor)
        if store.extractor.find_difference(identity) is not None:
            raise DataError(
                f"{out} lacks {missing[0]} and was made by the extractor {store.extractor}, not {identity}; delete "
                "it to extract all images again"
            )
        added = out.with_name(f".{out.stem}.added.safetensors")
        report = extract_store(missing, extractor, added)
        write_store(out, chain(store.images(), open_features(added).images()), extractor=store.extractor)
        added.unlink()
    if report.skipped:
        names = ", ".join(Path(name).name for name, _ in report.skipped[:5])
        reason = report.skipped[0][1]
        count = counted(len(report.skipped), "images")
        raise DataError(f"{count} of the captions could not be extracted, such as {names}: {reason}")


def extract_file(
    names: Sequence[str],
    identity: ExtractorIdentity,
    out: Path,
    run: Callable[[Job], JobStats],
    *,
    shard_size: int = 1000,
    data: str = "",
) -> ExtractionReport:
    """Write the features of images into one store; see `extract_store`.

    identity: the record of the extractor, from `identify`. run: processes the shards of a job, as `run_job` does by
    any engine. data: digest of the data set that the images come from, which the store keeps.
    """
    if out.is_dir():
        raise ConfigError(f"{out} is a folder; name the feature file to write")
    if find_opener(out) is not None:
        raise ConfigError(f"{out} ends in {out.suffix} and would be read as another format; name a .safetensors file")
    check_ids(names)
    files = [Path(name) for name in names if not is_url(name)]
    check_output(out, files)
    start = time.monotonic()
    folder = out.with_name(f".{out.name}.parts")
    settings = {"extractor": str(identity), "files": digest_files(files) + data}
    with locked(out):
        try:
            job = open_job(folder, settings, kind="features", shard_size=shard_size, names=names, allow_urls=True)
            stats = run(job)
            lines = chain.from_iterable(map(job.lines, range(job.shards)))
            skipped = tuple((line["image"], line["error"]) for line in lines if "error" in line)
            if stats.failed == stats.images:
                raise DataError(f"no image of {stats.images} has features: {skipped[0][1]}")
            write_store(out, _stored(job), extractor=identity, data=data)
        except LegendaError:
            if not list(folder.glob("*.safetensors")):
                shutil.rmtree(folder, ignore_errors=True)
            raise
        done = folder.with_name(f"{folder.name}.done")  # where this call is killed, no later one takes it for shards
        shutil.rmtree(done, ignore_errors=True)
        shutil.rmtree(folder.replace(done), ignore_errors=True)
    return ExtractionReport(stats.images - stats.failed, skipped, time.monotonic() - start, stats.cached)


def extract_shards(
    sources: Sequence[str], identity: ExtractorIdentity, out: Path, run: Callable[[Job], JobStats], **options: Any
) -> JobStats:
    """Write the features of the images of sources into a folder of shards; see `extract_file` and `open_job`."""
    settings = {"extractor": str(identity)}
    with locked(out):
        job = open_job(out, settings, kind="features", sources=sources, **options)
        check_ids(chain.from_iterable(map(job.names, range(job.shards))))
        return run(job)


def _stored(job: Job) -> Iterator[Image]:
    """Yield the entries of the stores of a job's shards; raise DataError for one that differs from its lines."""
    for number in range(job.shards):
        lines = job.shard(number)
        ids = tuple(image_id(line["image"]) for line in job.lines(number) if "error" not in line)
        if ids:
            store = open_features(lines.with_suffix(".safetensors"))
            if store.ids != ids:
                raise DataError(f"{store.path} holds other images than {lines}; delete both and extract again")
            yield from store.images()
