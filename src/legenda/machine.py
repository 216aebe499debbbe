"""The processor of this machine."""

from __future__ import annotations

import functools
import os
import platform
from pathlib import Path


@functools.cache
def processor_name() -> str:
    """Return the name of the processor, such as "AMD EPYC 9B14"; its architecture where the system does not tell."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def describe_machine() -> str:
    """Return the processor and the number of cores."""
    return f"{processor_name()}, {os.cpu_count()} cores"
