"""An extractor on several devices: a process for each."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import cache
from itertools import islice
from multiprocessing import connection, get_context, parent_process
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import Any, Self

from legenda.compute import ComputeOptions
from legenda.data.features.identity import ExtractorIdentity
from legenda.errors import DataError
from legenda.extractors.base import Extractor, identify
from legenda.extractors.batches import Batch, extract_batches
from legenda.extractors.registry import load_extractor
from legenda.extractors.video import FrameSampling
from legenda.plugins import load_plugin, plugin_files


class ExtractorProcesses:
    """Processes that each run an extractor on one of several devices; a context manager.

    computes: the device and the precision of each process. Raise LegendaError where the extractor cannot be loaded.
    """

    def __init__(self, name: str, computes: Sequence[ComputeOptions], num_regions: int | None = None) -> None:
        context = get_context("spawn")
        devices: SimpleQueue[ComputeOptions] = context.SimpleQueue()
        for compute in computes:
            devices.put(compute)
        settings = _Settings(name, num_regions, plugin_files(), len(computes))
        self._count = len(computes)
        self._pool = ProcessPoolExecutor(self._count, context, _initialize, (settings, devices))

    def __enter__(self) -> Self:
        self.identity: ExtractorIdentity = self._result(self._pool.submit(_identify))
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    @property
    def name(self) -> str:
        """The extractor's name."""
        return self.identity.name

    def batches(
        self, paths: Sequence[Path], batch_size: int, workers: int, sampling: FrameSampling | None
    ) -> Iterator[Batch]:
        """Yield what `extract_batches` does, in order; each process has a batch in work and one waiting."""
        size = batch_size if sampling is None else 1
        parts = (paths[start : start + size] for start in range(0, len(paths), size))
        arguments = (batch_size, workers, sampling)
        pending = deque(self._pool.submit(_extract, part, *arguments) for part in islice(parts, 2 * self._count))
        while pending:
            batch = self._result(pending.popleft())
            pending.extend(self._pool.submit(_extract, part, *arguments) for part in islice(parts, 1))
            yield batch

    def _result(self, future: Future[Any]) -> Any:
        try:
            return future.result()
        except BrokenProcessPool as error:
            raise DataError("a process of the extractor was killed; call the same command again to resume") from error


@dataclass(frozen=True)
class _Settings:
    """What a process loads its extractor with; processes: how many share the CPUs."""

    name: str
    num_regions: int | None
    plugins: tuple[Path, ...]
    processes: int


_load: Callable[[], Extractor]
"""Returns the extractor of this process, loaded by the first task so that its errors reach the caller."""


def _initialize(settings: _Settings, devices: SimpleQueue[ComputeOptions]) -> None:
    global _load
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, which ends the processes
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    compute = devices.get()

    @cache
    def load() -> Extractor:
        for file in settings.plugins:
            load_plugin(file)
        extractor = load_extractor(settings.name, compute, settings.num_regions)
        if "torch" in sys.modules:
            import torch

            torch.set_num_threads(max(1, torch.get_num_threads() // settings.processes))
        return extractor

    _load = load


def _exit_with_parent() -> None:
    """End this process when its parent is killed, which would leave it on the device."""
    parent = parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os._exit(1)


def _identify() -> ExtractorIdentity:
    return identify(_load())


def _extract(paths: Sequence[Path], batch_size: int, workers: int, sampling: FrameSampling | None) -> Batch:
    batches = extract_batches(_load(), paths, batch_size, workers, sampling)
    return [entry for batch in batches for entry in batch]
