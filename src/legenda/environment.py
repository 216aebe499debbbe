"""What Legenda runs on: the part "environment" of config.json, and the facts that a bug report needs."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from contextlib import suppress
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from legenda.errors import first_line, package_name, requirements_of
from legenda.io import __version__

_PACKAGES = ("pillow", "pillow-heif", "pydantic", "safetensors", "tyro")
"""Packages of every installation, besides NumPy and ONNX Runtime, whose versions can matter."""
_VARIABLES = (
    "CUDA_VISIBLE_DEVICES",
    "HF_HUB_OFFLINE",
    "OMP_NUM_THREADS",
    "PYTHONDONTWRITEBYTECODE",
    "PYTORCH_ENABLE_MPS_FALLBACK",
)
"""Environment variables that change what runs, and never hold a secret or a path."""


def describe_environment(folder: Path) -> dict[str, str | None]:
    """Return the versions, the commit of a checkout of Legenda, the date, the machine, and the path of the run folder.

    Other paths in config.json are relative to the run folder; the path finds what they name after the folder is moved
    without them.
    """
    import torch

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.machine()
    return {
        "legenda": __version__,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "commit": _commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{platform.system()} {platform.release()}, {os.cpu_count()} cores, {device}",
        "folder": str(folder.resolve()),
    }


def describe_installation() -> dict[str, str]:
    """Return versions, devices, extras and settings by name, without paths, names of users or secrets.

    A library that is missing or cannot be imported is said to be so.
    """
    commit = _commit()
    torch, devices = _describe_torch()
    variables = [f"{name}={os.environ[name]}" for name in _VARIABLES if name in os.environ]
    return {
        "legenda": f"{__version__}, commit {commit}" if commit else f"{__version__}, of no known commit",
        "python": f"{platform.python_version()} ({platform.python_implementation()})",
        "platform": platform.platform(),
        "processor": _processor(),
        "torch": torch,
        "devices": devices,
        "onnxruntime": _describe_onnxruntime(),
        "numpy": _version("numpy"),
        "packages": ", ".join(f"{name} {_version(name)}" for name in _PACKAGES),
        **_describe_extras(),
        "variables": ", ".join(variables) or "none",
    }


def _commit() -> str | None:
    """Return the commit of the checkout that holds this file, with "-dirty" after changes, or that which pip installed.

    It is None where pip has installed a folder or a wheel.
    """
    here = Path(__file__)
    options: dict[str, Any] = {"cwd": here.parent, "capture_output": True, "text": True, "timeout": 10}
    try:
        git = ["git", "--no-optional-locks"]  # so that the user's own git commands are not disturbed
        subprocess.run([*git, "ls-files", "--error-unmatch", here.name], check=True, **options)
        return subprocess.run(
            [*git, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"], check=True, **options
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        pass
    with suppress(metadata.PackageNotFoundError, ValueError, AttributeError):
        source = metadata.distribution("legenda").read_text("direct_url.json")
        return json.loads(source or "{}").get("vcs_info", {}).get("commit_id")
    return None


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "missing"


def _processor() -> str:
    """Return the name of the processor, its cores, and the memory where the system states it."""
    name = platform.processor() or platform.machine()
    with suppress(OSError):  # other systems than Linux
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                name = line.partition(":")[2].strip()
                break
    facts = [name, f"{os.cpu_count()} cores"]
    with suppress(AttributeError, OSError, ValueError):
        facts.append(f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.0f} GiB of memory")
    return ", ".join(facts)


def _describe_torch() -> tuple[str, str]:
    """Return the build of PyTorch and its devices."""
    if _version("torch") == "missing":
        return "missing", "cpu"
    try:
        import torch

        cuda, capability = torch.version.cuda, torch.backends.cpu.get_cpu_capability()
        build = f"{torch.__version__}, {f'CUDA {cuda}' if cuda else 'without CUDA'}, {capability}"
        devices = ["cpu"]
        for index in range(torch.cuda.device_count()):
            facts = torch.cuda.get_device_properties(index)
            devices.append(f"cuda:{index} {facts.name}, {facts.total_memory / 2**30:.0f} GiB")
        if torch.backends.mps.is_available():
            devices.append("mps")
    except (ImportError, OSError, RuntimeError, AttributeError) as error:  # libraries of another driver, for example
        return f"{_version('torch')} cannot be used: {first_line(error)}", "cpu"
    return build, "; ".join(devices)


def _describe_onnxruntime() -> str:
    import legenda.runtime  # noqa: F401 - first, as it turns ONNX Runtime's telemetry off

    try:
        import onnxruntime

        providers = onnxruntime.get_available_providers()
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        return f"{_version('onnxruntime')}; it cannot be used: {first_line(error)}"
    return f"{onnxruntime.__version__}, {', '.join(providers)}"


def _describe_extras() -> dict[str, str]:
    """Return the extras whose packages are all here, the others, and the versions of what they have installed."""
    names = [] if _version("legenda") == "missing" else metadata.metadata("legenda").get_all("Provides-Extra") or []
    packages = {name: {package_name(requirement) for requirement in requirements_of(name)} for name in names}
    versions = {package: _version(package) for package in sorted(set().union(*packages.values()))}
    present = {package for package, version in versions.items() if version != "missing"}
    return {
        "extras": ", ".join(name for name in names if packages[name] <= present) or "none",
        "extras missing": ", ".join(name for name in names if not packages[name] <= present) or "none",
        "packages of extras": ", ".join(f"{package} {versions[package]}" for package in sorted(present)) or "none",
    }
