"""Batches read in a background thread while the previous step is computed."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import torch

from legenda.tasks.base import Batch


class Prefetcher:
    """Reads batches in a thread, in order, and returns them on the device.

    For a GPU, batches are read into pinned memory and copied asynchronously. `next` reads a batch that was not started;
    errors of the reader are raised by `next`.
    """

    def __init__(self, read: Callable[[np.ndarray], Batch], device: torch.device) -> None:
        self._read, self._device = read, device
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="prefetch")
        self._pending: dict[bytes, Future[Batch]] = {}

    def start(self, indices: np.ndarray) -> None:
        """Start to read the examples at these indices."""
        self._pending[indices.tobytes()] = self._executor.submit(self._read_pinned, indices)

    def next(self, indices: np.ndarray) -> Batch:
        """Return the examples at these indices."""
        pending = self._pending.pop(indices.tobytes(), None)
        batch = self._read_pinned(indices) if pending is None else pending.result()
        non_blocking = self._device.type == "cuda"
        return {name: tensor.to(self._device, non_blocking=non_blocking) for name, tensor in batch.items()}

    def close(self) -> None:
        """End the thread; batches that nobody has taken are dropped."""
        self._executor.shutdown(cancel_futures=True)

    def _read_pinned(self, indices: np.ndarray) -> Batch:
        batch = self._read(indices)
        if self._device.type != "cuda":
            return batch
        return {name: tensor.pin_memory() for name, tensor in batch.items()}
