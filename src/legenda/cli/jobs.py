"""Options and exit codes of the commands that process any number of images."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from legenda.config import Config, PositiveInt
from legenda.errors import ConfigError, DataError
from legenda.images.shards import JobStats
from legenda.jobs.engine import EngineName, require_ray
from legenda.terminal import counted, escape_controls


class JobOptions(Config):
    """How many images are processed."""

    engine: EngineName = "local"
    """local, this process; pool, several processes of this machine, which share its GPUs; ray, those of Ray on this
    machine or on a cluster. The output is the same."""
    workers: PositiveInt | None = None
    """Processes of pool and ray, by default 2, which share the cores. local computes with all cores or, where workers
    are given, with one such share of them, so that the files of all three are equal."""
    shard_size: PositiveInt = 1000
    """Images of a shard, which a stop may cost."""
    allow_urls: bool = False
    """Fetch images that are named by URLs."""

    def shares(self) -> int:
        """Return the number of workers that share the cores."""
        return self.workers or (1 if self.engine == "local" else 2)


def is_folder(out: Path) -> bool:
    """Return whether an output is a folder of shards: an existing one, or a name without a suffix."""
    return out.is_dir() or not (out.suffix or out.exists())


def report_skipped(errors: Sequence[str], total: int, images: str, note: str = "") -> None:
    """Print the errors of images that were skipped; raise DataError where there are any."""
    if len(errors) == total == 1:
        raise DataError(f"{errors[0]}{note}")
    if errors:
        print("\n".join(map(escape_controls, errors)), file=sys.stderr)
        raise DataError(f"{len(errors)} of {total} {images} were skipped; repair or leave out those named above{note}")


def check_engine(engine: EngineName, device: str) -> None:
    """Raise ConfigError where Ray is not installed, or is asked for numbered devices."""
    if engine == "ray":
        if ":" in device or "," in device:
            raise ConfigError(f"--engine ray assigns the GPUs itself; use --device cuda, not {device}")
        require_ray()


def describe_shards(stats: JobStats, out: Path, images: str, done: str) -> None:
    """Print what a job has done; raise DataError where images failed."""
    by_call = stats.images - stats.cached
    rate = by_call / max(stats.seconds, 1e-9)
    print(
        f"{counted(stats.images, images)} in {counted(stats.shards, 'shards')} of {out}, "
        f"{stats.failed} of them failed; {by_call} by this call in {stats.seconds:.0f} s, {rate:.1f} {images}/s"
    )
    if stats.failed:
        raise DataError(
            f"{stats.failed} of {stats.images} {images} could not be {done}; see the lines with an error in {out}"
        )
