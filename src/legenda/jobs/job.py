"""A job that captions any number of images, or extracts their features, in shards: its folder, settings, progress.

The folder holds `manifest.json` (the images and the settings), the listing and its index, and for every shard one file
`captions-00000123.jsonl` with a line for each image: {"image", "captions": [{"caption", "score"}]}, or
{"image", "error"} for one that cannot be captioned. Of features, `features-00000123.jsonl` has {"image", "regions"},
their number, or {"image", "error"}, and `features-00000123.safetensors` is the store of its images. A shard is complete
when its .jsonl file, which is written last, exists, so a stopped job resumes when it is called again.
"""

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from shutil import rmtree
from typing import Any, Literal

from legenda.data.features.packed import MANIFEST
from legenda.errors import ConfigError, DataError
from legenda.extractors.images import Medium
from legenda.io import atomic_write, read_json, write_json
from legenda.jobs.listing import index_listing, is_url, list_images, reject_url, write_sorted
from legenda.run_files import CONFIG, VOCABULARY, WEIGHTS

Kind = Literal["captions", "features"]
"""What a job makes of images."""
LISTING = "names.txt"
INDEX = "index.bin"


@dataclass(frozen=True)
class Job:
    """A folder of shards of captions or features; relative names in its listing are relative to `base`."""

    folder: Path
    listing: Path
    base: Path
    images: int
    shards: int
    kind: Kind = "captions"

    def shard(self, number: int) -> Path:
        """Return the file with the lines of a shard."""
        return self.folder / f"{self.kind}-{number:08d}.jsonl"


@dataclass(frozen=True)
class ShardResult:
    """A complete shard: its images, how many of them failed, and whether an earlier call completed it."""

    shard: int
    images: int
    failed: int
    cached: bool


@dataclass(frozen=True)
class JobStats:
    """Sums over complete shards; cached: images of shards that an earlier call completed."""

    shards: int = 0
    images: int = 0
    failed: int = 0
    cached: int = 0


def fingerprint(run: Path) -> str:
    """Return the SHA-256 of a run's model: its weights, vocabulary and configuration."""
    digest = hashlib.sha256()
    for path in sorted(run / name for name in (CONFIG, WEIGHTS, VOCABULARY)):
        if path.is_file():
            with path.open("rb") as file:
                digest.update(path.name.encode() + hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def open_job(
    folder: Path,
    sources: Sequence[str],
    settings: Mapping[str, Any],
    *,
    shard_size: int,
    allow_urls: bool,
    kind: Kind = "captions",
    medium: Medium = "image",
) -> Job:
    """Start a job in a folder, or resume it.

    sources: files, folders, patterns, URLs and "-", whose images are listed, sorted, once, when the job starts; or one
    "@names.txt", a listing with one image a line, which is not copied or sorted. settings: what the output depends on,
    JSON values by name. medium: whether folders are searched for images or for videos, which then are what is listed.
    Raise ConfigError when the folder holds a job of other images, settings or shards.
    """
    folder, cwd = folder.resolve(), Path.cwd()
    user_listing = _user_listing(sources)
    if not allow_urls:
        for source in sources:
            reject_url(source)
    resolved = [source if source == "-" or is_url(source) else _absolute(source, cwd) for source in sources]
    expected = {"kind": kind, "sources": resolved, "shard_size": shard_size, **settings}
    manifest: dict[str, Any] | None = read_json(folder / MANIFEST) if (folder / MANIFEST).exists() else None
    if manifest is not None:
        _check_manifest(folder, manifest, expected)
    listing = folder / LISTING if user_listing is None else cwd / user_listing
    # A folder is listed once; a listing or the standard input is read in every call and must not have changed.
    if manifest is None or user_listing is not None or "-" in sources:
        with ExitStack() as files:
            index = files.enter_context(atomic_write(folder / INDEX))
            names = listing
            if user_listing is None:
                names = files.enter_context(atomic_write(listing))
                write_sorted(list_images(sources, allow_urls=allow_urls, medium=medium), names, folder)
            counts = asdict(index_listing(names, index, shard_size, allow_urls=allow_urls))
            if manifest is not None:
                _check_manifest(folder, manifest, counts)
        if manifest is None:
            manifest = {**expected, "base": str(cwd), **counts}
            write_json(folder / MANIFEST, manifest)
    images = int(manifest["images"])
    return Job(folder, listing, Path(manifest["base"]), images, -(-images // shard_size), kind)


def collect_stats(job: Job, results: Iterable[ShardResult], progress: Callable[[int, int], None]) -> JobStats:
    """Add up the shards as they are completed; `progress` gets the number of images done and in total.

    Delete temporary files of killed workers at the end. Raise DataError when shards are missing.
    """
    stats = JobStats()
    for result in results:
        stats = JobStats(
            stats.shards + 1,
            stats.images + result.images,
            stats.failed + result.failed,
            stats.cached + result.cached * result.images,
        )
        progress(stats.images, job.images)
    if (stats.shards, stats.images) != (job.shards, job.images):
        raise DataError(
            f"{job.folder} holds {stats.images} of {job.images} images in {stats.shards} of {job.shards} shards; call "
            "the same command again, or name another folder if the files were changed"
        )
    for path in job.folder.glob(f".{job.kind}-*"):
        path.unlink(missing_ok=True)
    for path in job.folder.glob(".sorting-*"):
        rmtree(path, ignore_errors=True)
    return stats


def _user_listing(sources: Sequence[str]) -> Path | None:
    listings = [source for source in sources if source.startswith("@")]
    if not listings:
        return None
    if len(sources) > 1:
        raise ConfigError(f"{listings[0]} is a listing and must be the only source; write all names into one file")
    return Path(listings[0][1:])


def _absolute(source: str, cwd: Path) -> str:
    prefix = "@" if source.startswith("@") else ""
    return prefix + os.path.normpath(cwd / source.removeprefix("@"))


def _check_manifest(folder: Path, manifest: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    for name, value in expected.items():
        if manifest.get(name) != value:
            raise ConfigError(
                f"{folder} holds {manifest.get('kind')} made with {name} {manifest.get(name)}, not {value}; name "
                "another folder for --out"
            )
