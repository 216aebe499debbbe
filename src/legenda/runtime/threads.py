"""The threads that operators compute with: PyTorch's where it is imported, else those of ONNX Runtime."""

from __future__ import annotations

import os
import sys

_threads: list[int] = []
"""The threads that `set_num_threads` has set, in the last place."""


def get_num_threads() -> int:
    """Return the threads of an operation: PyTorch's where it is imported, else as many as were set.

    By default OMP_NUM_THREADS, as in PyTorch, or the CPUs that this process may use.
    """
    if torch := sys.modules.get("torch"):
        return torch.get_num_threads()
    if _threads:
        return _threads[-1]
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    if wanted.isdecimal() and int(wanted) > 0:
        return int(wanted)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def set_num_threads(count: int) -> None:
    """Set the threads of an operation, of sessions of ONNX Runtime that are opened later and of PyTorch."""
    _threads[:] = [count]
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(count)
