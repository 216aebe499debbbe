"""Where and with what a run is made, for its config.json."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import torch

from legenda import __version__


def describe_environment(folder: Path) -> dict[str, str | None]:
    """Return the versions, the commit of a checkout of Legenda, the date, the machine, and the path of the run folder.

    Other paths in config.json are relative to the run folder; the path finds what they name after the folder is moved
    alone.
    """
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


def _commit() -> str | None:
    """Return the commit of the checkout that holds this file, with "-dirty" after changes; None outside of one."""
    here = Path(__file__)
    options = {"cwd": here.parent, "capture_output": True, "text": True, "timeout": 10}
    try:
        git = ["git", "--no-optional-locks"]  # so that the user's own git commands are not disturbed
        subprocess.run([*git, "ls-files", "--error-unmatch", here.name], check=True, **options)
        return subprocess.run(
            [*git, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"], check=True, **options
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
