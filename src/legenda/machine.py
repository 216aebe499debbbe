"""The processor of this machine."""

from __future__ import annotations

import functools
import os
import platform
from pathlib import Path


@functools.cache
def _cpu_info(key: str) -> str | None:
    """Return a value of the first processor in Linux's /proc/cpuinfo."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(key)), None)


def processor_name() -> str:
    """Return the name of the processor, such as "AMD EPYC 9B14"; its architecture where the system does not tell."""
    return _cpu_info("model name") or platform.processor() or platform.machine()


def is_intel() -> bool:
    """Return whether the processor is one of Intel's."""
    return "GenuineIntel" in (_cpu_info("vendor_id") or platform.processor())


def describe_machine() -> str:
    """Return the processor and the number of cores."""
    return f"{processor_name()}, {os.cpu_count()} cores"
