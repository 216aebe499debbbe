"""Frames of videos, decoded by PyAV, and the features of videos: one vector for each frame."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from legenda.errors import DataError, import_extra
from legenda.images.extractor import Extractor, FrameSampling, ImageRegions, run_extractor

if TYPE_CHECKING:
    from av import VideoFrame
    from av.container import InputContainer

_LAST_PACKETS = 8
"""FFmpeg marks the packet at which a file is cut, after which its parsers flush a few others."""
_TRANSPORT_PACKET = 188
"""Bytes of each packet of an MPEG transport stream."""


def extract_video(
    extractor: Extractor, source: Path | bytes, sampling: FrameSampling, batch_size: int, name: str | None = None
) -> ImageRegions:
    """Return features (frames, D), of each frame the mean of its regions, and no boxes.

    source: a path, or the content of a file, with its `name`. batch_size: frames that the extractor gets at once.
    Raise DataError, naming the file, where it is truncated or cannot be decoded, and where the extractor fails, and
    ConfigError without PyAV.
    """
    name = name or str(source)
    frames = read_frames(source, sampling, name)
    means: list[np.ndarray] = []
    while batch := list(islice(frames, batch_size)):
        regions = run_extractor(extractor, batch, [name] * len(batch))
        means += [features.mean(axis=0, dtype=np.float32) for features, _ in regions]
    return np.stack(means), None


def read_frames(source: Path | bytes, sampling: FrameSampling, name: str | None = None) -> Iterator[Image.Image]:
    """Yield the sampled frames of a video in their order, as RGB; see `extract_video` for arguments and errors."""
    av = import_extra("av", "video")

    def open_container() -> InputContainer:
        return av.open(BytesIO(source) if isinstance(source, bytes) else str(source))

    try:
        with open_container() as container:
            count = _count_frames(container)
        with open_container() as container:
            container.streams.video[0].thread_type = "AUTO"
            if sampling.num_frames:
                chosen = _by_number(container, count, sampling.num_frames)
            else:
                chosen = _by_rate(container, sampling.frame_rate or 0.0)
            frame = None
            for frame in chosen:
                yield frame.to_image()
            if frame is None:
                raise ValueError("it has no frames")
    except Exception as error:  # FFmpeg and PyAV raise exceptions of many types
        reason = "it has no video" if isinstance(error, IndexError) else getattr(error, "strerror", None) or error
        raise DataError(f"{name or source} cannot be decoded ({reason}); convert it to MP4 or leave it out") from error


def _count_frames(container: Any) -> int:
    """Return the number of frames; raise ValueError for a file that ends too early.

    FFmpeg reads what is there of a truncated file. It then has fewer frames than AVI and MP4 declare, or ends earlier
    than the duration in the header of Matroska and WebM. MPEG declares nothing: its last packet is
    cut, also that of a transport stream, or its last frame is decoded in part.
    """
    stream = container.streams.video[0]
    is_mpeg = container.format.name.startswith("mpeg")
    packets, frames, end, is_cut = 0, 0, 0.0, False
    last: deque[bool] = deque(maxlen=_LAST_PACKETS)
    for packet in container.demux():
        time = packet.dts if packet.pts is None else packet.pts
        if time is not None:
            end = max(end, float((time + (packet.duration or 0)) * packet.time_base))
        last.append(packet.is_corrupt)
        if packet.stream is not stream:
            continue
        packets += time is not None
        frames += packet.size > 0
        for frame in packet.decode() if is_mpeg else ():
            is_cut = frame.is_corrupt
    if "matroska" in container.format.name and container.duration:
        seconds = container.duration / 1e6
        is_cut = end < 0.99 * seconds - 2 / float(stream.average_rate or 25)
    elif container.format.name == "mpegts":
        is_cut |= container.size % _TRANSPORT_PACKET > 0
    if is_cut or any(last) or packets < 0.99 * stream.frames - 1:
        raise ValueError("it is truncated")
    return frames


def _by_number(container: InputContainer, count: int, wanted: int) -> Iterator[VideoFrame]:
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


def _by_rate(container: InputContainer, rate: float) -> Iterator[VideoFrame]:
    stream = container.streams.video[0]
    start, due = None, 0
    for index, frame in enumerate(container.decode(stream)):
        time = frame.time if frame.time is not None else index / float(stream.average_rate or 25)
        start = time if start is None else start
        if (time - start) * rate >= due - 1e-6:
            yield frame
            due = math.floor((time - start) * rate + 1e-6) + 1
