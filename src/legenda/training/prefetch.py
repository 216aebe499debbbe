"""Batches read ahead of their step, while the step before is computed."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import torch

from legenda.tasks.base import Batch


class ReadAhead:
    """Reads batches in another thread, one after the other, and hands them over on the device.

    For a GPU they are read into page-locked memory, from which they are copied while the device computes. What is
    asked for without having been begun is read at once; an error of reading is raised where the batch is taken.
    """

    def __init__(self, read: Callable[[np.ndarray], Batch], device: torch.device) -> None:
        self._read, self._device = read, device
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="read-ahead")
        self._begun: dict[bytes, Future[Batch]] = {}

    def begin(self, positions: np.ndarray) -> None:
        """Begins to read the examples at these positions."""
        self._begun[positions.tobytes()] = self._thread.submit(self._locked, positions)

    def take(self, positions: np.ndarray) -> Batch:
        """The examples at these positions."""
        begun = self._begun.pop(positions.tobytes(), None)
        batch = self._locked(positions) if begun is None else begun.result()
        return {
            name: tensor.to(self._device, non_blocking=self._device.type == "cuda") for name, tensor in batch.items()
        }

    def _locked(self, positions: np.ndarray) -> Batch:
        batch = self._read(positions)
        if self._device.type != "cuda":
            return batch
        return {name: tensor.pin_memory() for name, tensor in batch.items()}
