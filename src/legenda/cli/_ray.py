"""`--engine ray` of commands: images in shards, with many processes."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from legenda.errors import ConfigError, DataError
from legenda.jobs.job import Job, Kind, collect_stats, open_job
from legenda.jobs.ray_engine import Work, process_shards, ray_cluster, require_ray
from legenda.terminal import progress_bar

if TYPE_CHECKING:
    from legenda.cli._caption_options import CaptionOptions
    from legenda.cli._extract_options import ExtractOptions

_PARTICIPLES: dict[Kind, str] = {"captions": "captioned", "features": "extracted"}


def require_folder(options: "CaptionOptions | ExtractOptions") -> Path:
    """Return the folder of the shards; raise ConfigError where there is none, for numbered devices and without Ray."""
    if options.out is None:
        raise ConfigError("--engine ray writes many files; name a folder for them with --out")
    if options.out.is_file():
        raise ConfigError(f"{options.out} is a file; --engine ray needs a folder for --out")
    if ":" in options.device or "," in options.device:
        raise ConfigError(f"--engine ray assigns the GPUs itself; use --device cuda, not {options.device}")
    require_ray()
    return options.out


def run_job(
    options: "CaptionOptions | ExtractOptions",
    out: Path,
    kind: Kind,
    settings: Mapping[str, Any],
    make_work: Callable[[Job], Work],
    **listing: Any,
) -> None:
    """Write the shards into the folder `out`, which is locked; see `legenda.jobs.job` for its files.

    settings: what the output depends on. make_work: returns what a worker needs for a job. listing: further arguments
    of `open_job`. Raise DataError at the end where images failed.
    """
    from legenda.io import locked

    done_to_images = _PARTICIPLES[kind]
    listing |= {"kind": kind, "shard_size": options.shard_size, "allow_urls": options.allow_urls}
    with locked(out):
        with progress_bar("listing images"):
            job = open_job(out, options.images, settings, **listing)
        work = make_work(job)
        with ray_cluster(options.workers), progress_bar(f"writing {kind}") as update:
            start = time.perf_counter()
            stats = collect_stats(job, process_shards(work, options.workers), update)
            seconds = time.perf_counter() - start
    done = stats.images - stats.cached
    print(
        f"{stats.images} images in {stats.shards} shards of {out}, {stats.failed} of them failed; {done} "
        f"by this call in {seconds:.0f} s, {done / seconds:.1f} images/s"
    )
    if stats.failed:
        raise DataError(
            f"{stats.failed} of {stats.images} images could not be {done_to_images}; see the lines with an error in "
            f"{out}"
        )
