"""Frames of videos, decoded by PyAV, and the features of videos: one vector for each frame."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from PIL import Image

from legenda.config import Bounded, PositiveFloat, PositiveInt
from legenda.errors import ConfigError, DataError, import_extra
from legenda.extractors.base import Extractor, ImageRegions, run_extractor

_ENDING = re.compile(r"@(\d+frames|[\d.e+-]+fps)$")


class UnreadableVideoError(DataError):
    """A video cannot be decoded."""


@dataclass(frozen=True)
class FrameSampling(Bounded):
    """Which frames of a video are taken: `num_frames` of them, or `frame_rate` in each second.

    Of n frames, number k of `num_frames` N is floor((k + 0.5) n / N), so a shorter video repeats frames. By rate, the
    first frame at or after each multiple of 1 / frame_rate seconds is taken, each once. Raise ConfigError unless
    exactly one of them is given and positive.
    """

    section: ClassVar[str] = "--"

    num_frames: PositiveInt | None = None
    frame_rate: PositiveFloat | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.num_frames is None) == (self.frame_rate is None):
            raise ConfigError("give either --num-frames or --frame-rate for videos, not both")

    @property
    def ending(self) -> str:
        """What the name of the extractor ends in."""
        return f"@{self.num_frames}frames" if self.frame_rate is None else f"@{self.frame_rate:g}fps"


def is_of_frames(extractor: str) -> bool:
    """Return whether the name that is stored with features is of frames of videos."""
    return _ENDING.search(extractor) is not None


def extract_video(extractor: Extractor, path: Path, sampling: FrameSampling, batch_size: int) -> ImageRegions:
    """Return features (frames, D), of each frame the mean of its regions, and no boxes.

    batch_size: frames that the extractor gets at once. Raise UnreadableVideoError, naming the file, where it cannot be
    decoded, DataError where the extractor fails, and ConfigError without PyAV.
    """
    frames = read_frames(path, sampling)
    means: list[np.ndarray] = []
    while batch := list(islice(frames, batch_size)):
        regions = run_extractor(extractor, batch, [path] * len(batch))
        means += [features.mean(axis=0, dtype=np.float32) for features, _ in regions]
    return np.stack(means), None


def read_frames(path: Path, sampling: FrameSampling) -> Iterator[Image.Image]:
    """Yield the sampled frames of a video in their order, as RGB; see `extract_video` for errors."""
    av = import_extra("av", "video")
    try:
        with av.open(str(path)) as container:
            count = _count_frames(container) if sampling.num_frames else 0
        with av.open(str(path)) as container:
            container.streams.video[0].thread_type = "AUTO"
            if sampling.num_frames:
                chosen = _by_number(container, count, sampling.num_frames)
            else:
                chosen = _by_rate(container, sampling.frame_rate or 0.0)
            empty = True
            for frame in chosen:
                empty = False
                yield frame.to_image()
            if empty:
                raise ValueError("it has no frames")
    except Exception as error:  # FFmpeg and PyAV raise exceptions of many types
        reason = "it has no video" if isinstance(error, IndexError) else getattr(error, "strerror", None) or error
        raise UnreadableVideoError(f"{path} cannot be decoded ({reason}); convert it to MP4 or leave it out") from error


def _count_frames(container: Any) -> int:
    return sum(1 for packet in container.demux(container.streams.video[0]) if packet.size)


def _by_number(container: Any, count: int, wanted: int) -> Iterator[Any]:
    """Yield `wanted` frames; the last one again where fewer than `count` can be decoded."""
    targets = [(2 * k + 1) * count // (2 * wanted) for k in range(wanted)]
    done, frame = 0, None
    for index, frame in enumerate(container.decode(container.streams.video[0])):
        while done < wanted and targets[done] == index:
            yield frame
            done += 1
        if done == wanted:
            return
    if frame is not None:
        yield from [frame] * (wanted - done)


def _by_rate(container: Any, rate: float) -> Iterator[Any]:
    stream = container.streams.video[0]
    start, due = None, 0
    for index, frame in enumerate(container.decode(stream)):
        time = frame.time if frame.time is not None else index / float(stream.average_rate or 25)
        start = time if start is None else start
        if (time - start) * rate >= due - 1e-6:
            yield frame
            due = math.floor((time - start) * rate + 1e-6) + 1
