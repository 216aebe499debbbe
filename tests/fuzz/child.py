"""Runs command lines of Legenda in this process, one after the other, and reports how each ended.

Reads one JSON list of arguments per line from the standard input; answers with one JSON object: exit code, standard
output and error, traceback, rise of resident memory in MiB and CPU seconds. What libraries in C print is captured too.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
import traceback
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

_KEPT = 20_000
"""Characters of an output that are kept."""
_HEAP = 6 << 30
"""Bytes of data of this process beyond which allocations fail, so that a finding does not end the machine."""


def run(arguments: list[str], outputs: tuple[int, int]) -> dict[str, Any]:
    """Run one command and return how it ended."""
    from legenda.cli.main import main

    for file in outputs:
        os.ftruncate(file, 0)
        os.lseek(file, 0, os.SEEK_SET)
    _reset_peak()
    before = _peak()
    code: Any = 0
    failure, began = "", time.process_time()
    try:
        main(arguments)
    except SystemExit as stop:
        code = stop.code
    except BaseException:  # a finding, whatever it is
        failure = traceback.format_exc()
    seconds = time.process_time() - began
    sys.stdout.flush()
    sys.stderr.flush()
    texts = [os.pread(file, _KEPT, 0).decode(errors="replace") for file in outputs]
    return {
        "code": code or 0,
        "out": texts[0],
        "err": texts[1],
        "trace": failure,
        "peak": _peak() - before,
        "cpu": seconds,
    }


def _reset_peak() -> None:
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _peak() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Answer until the standard input ends."""
    requests, answers = os.fdopen(os.dup(0), encoding="utf-8"), os.fdopen(os.dup(1), "w", encoding="utf-8")
    folder = Path(sys.argv[1])
    outputs = tuple(os.open(folder / name, os.O_RDWR | os.O_CREAT, 0o600) for name in ("out", "err"))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(outputs[0], 1)
    os.dup2(outputs[1], 2)
    resource.setrlimit(resource.RLIMIT_DATA, (_HEAP, _HEAP))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    import torch

    torch.set_num_threads(1)
    for category in (RuntimeWarning, UserWarning, FutureWarning):
        warnings.simplefilter("always", category)  # as in a new process
    for line in requests:
        answers.write(json.dumps(run(json.loads(line), outputs)) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
