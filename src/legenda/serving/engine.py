"""Captions for many at once: requests wait in a line; those that ask the same of one model are answered together."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

import torch
from PIL import Image

from legenda.decoding import GenerationOutput, beam_search, sample
from legenda.errors import UserError
from legenda.evaluation.runs import CaptionerRun
from legenda.extractors import Extractor, run_extractor
from legenda.regions import Regions
from legenda.visualization.caption_attention import CaptionAttention, extract_attention

MOST_WAITING = 128
_TOGETHER = 16
_PATIENCE = 0.01  # seconds that the first of a batch waits for others


class BusyError(Exception):
    """Too many requests wait."""


@dataclass(frozen=True)
class Served:
    """A model that answers, and what makes its regions."""

    run: CaptionerRun
    extractor: Extractor


@dataclass(frozen=True)
class Wish:
    """What is asked of a model; a temperature above 0 samples with the seed, 0 searches with the beam."""

    model: str
    beam_size: int = 3
    captions: int = 1
    temperature: float = 0.0
    seed: int = 0


@dataclass(frozen=True)
class _Request:
    wish: Wish
    picture: Image.Image
    name: str
    answer: Future[list[CaptionAttention]]


class Engine:
    """Models behind one line of requests, which a thread of its own works through."""

    def __init__(self, models: Mapping[str, Served]) -> None:
        self.models = models
        self.line: queue.Queue[_Request | None] = queue.Queue(MOST_WAITING)
        self.answered = 0
        self.batches = 0
        self.worker = threading.Thread(target=self._work, daemon=True, name="captions")
        self.worker.start()

    def ask(self, wish: Wish, picture: Image.Image, name: str) -> Future[list[CaptionAttention]]:
        """What will be the captions, those of a search best first; `name` is the picture's, for messages.

        Raises BusyError when the line is full.
        """
        request = _Request(wish, picture, name, Future())
        try:
            self.line.put_nowait(request)
        except queue.Full:
            raise BusyError from None
        return request.answer

    def close(self) -> None:
        """Answers those that wait, and stops."""
        self.line.put(None)
        self.worker.join()

    def _work(self) -> None:
        while (batch := self._next_batch()) is not None:
            groups: dict[Wish, list[_Request]] = {}
            for request in batch:
                if request.answer.set_running_or_notify_cancel():  # else whoever asked has left
                    groups.setdefault(request.wish, []).append(request)
            for wish, group in groups.items():
                # the captions of a seed must not depend on who else asks
                for part in [group] if wish.temperature == 0 else [[request] for request in group]:
                    self._serve(wish, part)

    def _next_batch(self) -> list[_Request] | None:
        """The next requests; None at the end."""
        first = self.line.get()
        if first is None:
            return None
        batch, last = [first], time.monotonic() + _PATIENCE
        while len(batch) < _TOGETHER:
            try:
                request = self.line.get(timeout=max(0.0, last - time.monotonic()))
            except queue.Empty:
                break
            if request is None:
                self.line.put(None)
                break
            batch.append(request)
        return batch

    def _serve(self, wish: Wish, group: Sequence[_Request]) -> None:
        self.batches += 1
        try:
            answers = self._answers(wish, group)
        except Exception as error:
            if len(group) > 1:  # one of them may be to blame: each on its own
                for request in group:
                    self._serve(wish, [request])
            else:
                group[0].answer.set_exception(error)
            return
        for request, answer in zip(group, answers, strict=True):
            self.answered += 1
            request.answer.set_result(answer)

    def _answers(self, wish: Wish, group: Sequence[_Request]) -> list[list[CaptionAttention]]:
        served = self.models[wish.model]
        names = [Path(request.name) for request in group]
        found = run_extractor(served.extractor, [request.picture for request in group], names)
        regions = Regions.stack([Regions.from_numpy(*entry) for entry in found])
        vocabulary = served.run.model.vocabulary
        if vocabulary is None:
            raise UserError(f"{served.run.folder} has no vocabulary, so it cannot write words; serve a trained run")
        decoded = _decode(served.run, regions, wish)
        return [extract_attention(decoded, regions, vocabulary, row) for row in range(len(group))]


@torch.no_grad()
def _decode(run: CaptionerRun, regions: Regions, wish: Wish) -> GenerationOutput:
    if wish.temperature == 0:
        width = max(wish.beam_size, wish.captions)
        return beam_search(run.model, regions, beam_size=width, num_return_sequences=wish.captions, need_attention=True)
    generator = torch.Generator().manual_seed(wish.seed)
    return sample(
        run.model,
        regions,
        num_samples=wish.captions,
        temperature=wish.temperature,
        generator=generator,
        need_attention=True,
    )
