"""Dynamic batching: requests wait in a queue; those with equal settings for one model are captioned together."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path

from PIL import Image

from legenda.decoding.search import search
from legenda.errors import LegendaError
from legenda.evaluation.runs import CaptionerRun
from legenda.extractors import Extractor, run_extractor
from legenda.models.eval_mode import eval_mode
from legenda.pipeline import GeneratedCaption, extract_captions
from legenda.regions import Regions
from legenda.search_options import SearchOptions
from legenda.serve.limits import BusyError

_logger = logging.getLogger(__name__)

MAX_QUEUED = 128
MAX_BATCH_SIZE = 16
BATCH_WAIT_S = 0.01
"""Seconds that the first request of a batch waits for others."""


@dataclass(frozen=True)
class LoadedModel:
    """A model with the extractor of its regions."""

    run: CaptionerRun
    extractor: Extractor


@dataclass(frozen=True)
class Request:
    """A model, a number of captions and how they are searched for."""

    model: str
    num_captions: int = 1
    search: SearchOptions = field(default_factory=SearchOptions)


@dataclass(frozen=True)
class _QueuedRequest:
    request: Request
    image: Image.Image
    name: str
    result: Future[list[GeneratedCaption]]


class Engine:
    """Models behind one queue of requests, processed by one thread."""

    def __init__(self, models: Mapping[str, LoadedModel]) -> None:
        self.models = models
        self.queue: queue.Queue[_QueuedRequest | None] = queue.Queue(MAX_QUEUED)
        self.completed = 0
        self.batches = 0
        self.worker = threading.Thread(target=self._work, daemon=True, name="captions")
        self.worker.start()

    def submit(self, request: Request, image: Image.Image, name: str) -> Future[list[GeneratedCaption]]:
        """Return the future captions of an image, those of beam search best first; `name` is used in error messages.

        Raise BusyError when the queue is full.
        """
        queued = _QueuedRequest(request, image, name, Future())
        try:
            self.queue.put_nowait(queued)
        except queue.Full:
            raise BusyError("the queue is full; try again in a few seconds") from None
        return queued.result

    def close(self) -> None:
        """Process the queued requests and stop the thread."""
        self.queue.put(None)
        self.worker.join()

    def _work(self) -> None:
        while self._process_batch():  # nothing of a batch is referred to while the next one is awaited
            pass

    def _process_batch(self) -> bool:
        """Answer the next requests; return False when the engine is closed."""
        batch = self._next_batch()
        if batch is None:
            return False
        groups: dict[Request, list[_QueuedRequest]] = {}
        for queued in batch:
            if queued.result.set_running_or_notify_cancel():  # False where the client has disconnected
                groups.setdefault(queued.request, []).append(queued)
        for request, group in groups.items():
            # the samples of a seed must not depend on other requests
            for part in [group] if not request.search.do_sample else [[queued] for queued in group]:
                self._process(request, part)
        return True

    def _next_batch(self) -> list[_QueuedRequest] | None:
        """Return the next requests, or None when the engine is closed."""
        first = self.queue.get()
        if first is None:
            return None
        batch, deadline = [first], time.monotonic() + BATCH_WAIT_S
        while len(batch) < MAX_BATCH_SIZE:
            try:
                queued = self.queue.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                break
            if queued is None:
                self.queue.put(None)
                break
            batch.append(queued)
        return batch

    def _process(self, request: Request, group: Sequence[_QueuedRequest]) -> None:
        self.batches += 1
        results = self._try(request, group)
        if isinstance(results, Exception) and len(group) > 1:  # one image may have failed: retry one by one
            for queued in group:
                self._process(request, [queued])
        elif isinstance(results, Exception):
            group[0].result.set_exception(results)
        else:
            for queued, result in zip(group, results, strict=True):
                self.completed += 1
                queued.result.set_result(result)

    def _try(self, request: Request, group: Sequence[_QueuedRequest]) -> list[list[GeneratedCaption]] | Exception:
        """Return the captions, or the exception without its frames, which hold the images."""
        try:
            return self._caption(request, group)
        except Exception as error:
            if not isinstance(error, LegendaError):
                _logger.exception("captioning failed")
            cause: BaseException | None = error
            while cause is not None:
                cause.__traceback__ = None
                cause = cause.__cause__ or cause.__context__
            return error

    def _caption(self, request: Request, group: Sequence[_QueuedRequest]) -> list[list[GeneratedCaption]]:
        loaded = self.models[request.model]
        names = [Path(queued.name) for queued in group]
        extracted = run_extractor(loaded.extractor, [queued.image for queued in group], names)
        regions = Regions.stack([Regions.from_numpy(*entry) for entry in extracted]).to(loaded.run.model.device)
        vocabulary = loaded.run.model.require_vocabulary()
        with eval_mode(loaded.run.model):
            output = search(
                loaded.run.model,
                regions,
                request.search,
                vocabulary,
                num_captions=request.num_captions,
                need_attention=True,
            )
        return [extract_captions(output, regions, vocabulary, image) for image in range(len(group))]
