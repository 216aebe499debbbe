"""The queue of images: two threads decode them within a budget of memory, a third captions them in batches."""

from __future__ import annotations

import ctypes
import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from io import BytesIO
from typing import IO, Self

from PIL import Image, ImageOps

from legenda.errors import LegendaError
from legenda.images.files import count_pixels, read_image
from legenda.pipeline import GeneratedCaption, Pipeline
from legenda.runtime.settings import GenerationConfig

_LOG = logging.getLogger(__name__)

MAX_WAITING = 128
"""Images that wait to be decoded or captioned."""
LARGEST_IMAGES = 3
"""How many of the largest images may be decoded at a time; of smaller ones there may be more."""
_DECODING_THREADS = 2
_MAX_BATCH_SIZE = 16
_BATCH_WAIT_S = 0.01
"""Seconds that the first image of a batch waits for others."""
_M_MMAP_THRESHOLD = -3


class BusyError(Exception):
    """The server cannot caption an image now."""


@dataclass(frozen=True)
class Request:
    """A model, a number of captions and how they are searched for; images of equal requests share a batch."""

    model: str
    num_captions: int = 1
    search: GenerationConfig = field(default_factory=GenerationConfig)


@dataclass(frozen=True)
class CaptionedImage:
    """The captions of an image, those of beam search best first, and the image at a small size if asked for."""

    captions: list[GeneratedCaption]
    preview: Image.Image | None


@dataclass(eq=False)
class _Upload:
    request: Request
    file: IO[bytes]
    name: str
    preview_side: int | None
    result: Future[CaptionedImage] = field(default_factory=Future)
    image: Image.Image | None = None
    preview: Image.Image | None = None
    pixels: int = 0


class Engine:
    """Models behind one queue of images; a context manager that ends its threads.

    max_pixels: of the largest image. At most LARGEST_IMAGES times as many pixels are decoded at a time: an image takes
    its share before it is decoded and keeps it until it has left the queue, whether or not somebody still waits for
    its captions. The threads do not keep the process alive.
    """

    def __init__(self, models: Mapping[str, Pipeline], max_pixels: int = 50_000_000) -> None:
        self.models, self.max_pixels = models, max_pixels
        self.free_pixels = LARGEST_IMAGES * max_pixels
        self.completed = self.batches = 0
        self._stopping = False
        self._changed = threading.Condition()  # guards what is above and both queues
        self._uploads: deque[_Upload] = deque()
        self._decoded: deque[_Upload] = deque()
        steps = [*[self._decode_next] * _DECODING_THREADS, self._caption_next]
        self._threads = [threading.Thread(target=_repeat, args=(step,), daemon=True) for step in steps]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Stop, and wait a moment for what is at work."""
        self.stop()
        for thread in self._threads:
            thread.join(0.3)

    @property
    def waiting(self) -> int:
        """The number of images that wait."""
        return len(self._uploads) + len(self._decoded)

    def submit(
        self, request: Request, file: IO[bytes], name: str, preview_side: int | None = None
    ) -> Future[CaptionedImage]:
        """Return the future captions of an image file, which errors call `name`.

        preview_side: the longer side of the preview in pixels. Raise BusyError when the queue is full or the engine
        stops. The future holds a LegendaError for a file that cannot be decoded or captioned, and a BusyError where
        the engine stopped before its turn. A future that is cancelled is skipped.
        """
        upload = _Upload(request, file, name, preview_side)
        with self._changed:
            if self._stopping:
                raise _stopped()
            if self.waiting >= MAX_WAITING:
                raise BusyError("the queue is full; try again in a few seconds")
            self._uploads.append(upload)
            self._changed.notify_all()
        return upload.result

    def stop(self) -> None:
        """Refuse images that wait, and new ones; those that are being captioned are finished."""
        with self._changed:
            self._stopping = True
            waiting = [*self._uploads, *self._decoded]
            self._uploads.clear()
            self._decoded.clear()
            self._changed.notify_all()
        for upload in waiting:
            self._finish(upload, _stopped())

    def _decode_next(self) -> bool:
        """Decode the next image and queue it for its model; return False when the engine stops."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopping or self._uploads)
            if self._stopping:
                return False
            upload = self._uploads.popleft()
        if upload.result.cancelled():
            return True
        try:
            self._decode(upload)
        except Exception as error:  # of any kind where the request has ended, and with it the file
            self._finish(upload, error)
            return True
        with self._changed:
            if not self._stopping:
                self._decoded.append(upload)
                self._changed.notify_all()
                return True
        self._finish(upload, _stopped())
        return False

    def _decode(self, upload: _Upload) -> None:
        data = BytesIO(upload.file.read())
        pixels = count_pixels(data, upload.name, max_pixels=self.max_pixels)
        with self._changed:
            self._changed.wait_for(lambda: self._stopping or self.free_pixels >= pixels)
            if self._stopping:
                raise _stopped()
            self.free_pixels -= pixels
            upload.pixels = pixels
        upload.image = read_image(data, upload.name)
        upload.image.filename = upload.name  # type: ignore[attr-defined] - as files that Pillow opened have it
        if upload.preview_side is not None:
            upload.preview = ImageOps.contain(upload.image, (upload.preview_side, upload.preview_side))

    def _caption_next(self) -> bool:
        """Caption the next images; return False when the engine stops."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopping or self._decoded)
            self._changed.wait_for(lambda: self._stopping or len(self._decoded) >= _MAX_BATCH_SIZE, _BATCH_WAIT_S)
            if self._stopping:
                return False
            batch = [self._decoded.popleft() for _ in range(min(len(self._decoded), _MAX_BATCH_SIZE))]
        groups: dict[Request, list[_Upload]] = {}
        for upload in batch:
            if upload.result.cancelled():
                self._finish(upload, _stopped())
                continue
            groups.setdefault(upload.request, []).append(upload)
        for group in groups.values():
            self._caption(group)
        return True

    def _caption(self, group: Sequence[_Upload]) -> None:
        """Caption images of equal requests; one at a time where that fails, as one of them may be the cause."""
        if self._stopping:
            for upload in group:
                self._finish(upload, _stopped())
            return
        self.batches += 1
        request = group[0].request
        try:
            outputs = self.models[request.model].caption(
                [upload.image for upload in group if upload.image is not None],
                num_captions=request.num_captions,
                generation_config=request.search,
            )
        except Exception as error:
            if len(group) > 1:
                for upload in group:
                    self._caption([upload])
                return
            if not isinstance(error, LegendaError):
                _LOG.exception("captioning failed")
            self._finish(group[0], error)
            return
        for upload, output in zip(group, outputs, strict=True):
            self.completed += 1
            captions = [output] if isinstance(output, GeneratedCaption) else output
            self._finish(upload, CaptionedImage(captions, upload.preview))

    def _finish(self, upload: _Upload, outcome: CaptionedImage | Exception) -> None:
        """Drop the image, free its pixels and set the result."""
        upload.image = upload.preview = None
        with self._changed:
            self.free_pixels += upload.pixels
            upload.pixels = 0
            self._changed.notify_all()
        if not upload.result.set_running_or_notify_cancel():
            return
        if isinstance(outcome, CaptionedImage):
            upload.result.set_result(outcome)
            return
        # frames of the error and of its causes hold the image, in a cycle through the future
        outcome.__traceback__ = outcome.__cause__ = outcome.__context__ = None
        upload.result.set_exception(outcome)


def _repeat(step: Callable[[], bool]) -> None:
    while step():  # nothing that a step referred to stays in memory while the next one waits
        pass


def _stopped() -> BusyError:
    return BusyError("the server is stopping; try again in a few seconds")


def return_freed_memory() -> None:
    """Let glibc return the memory of large images to the system; it would keep freed blocks of up to 32 MB."""
    with suppress(OSError, AttributeError):  # other C libraries have no mallopt
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, 8_000_000)
