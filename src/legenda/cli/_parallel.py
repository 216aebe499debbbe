"""Commands side by side, each in a process of its own, so that one that fails takes no other with it."""

import os
import queue
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from legenda.cli._worker import THEN

Command = Sequence[str]


def run_parallel(work: Mapping[str, Sequence[Command]], places: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Runs the commands of each piece of work one after the other, as many pieces at once as there are places.

    work: by a name that stands before every line it says. places: what the environment of a piece of work has besides,
    such as the device it may use. Gives what became of each piece that failed, by its name, in one phrase.
    """
    free: queue.SimpleQueue[Mapping[str, str]] = queue.SimpleQueue()
    for place in places:
        free.put(place)
    running: list[subprocess.Popen[str]] = []
    stopped = False

    def work_off(name: str) -> str | None:
        place = free.get()
        try:
            if stopped:
                return "was not begun"
            process = _start(work[name], place)
            running.append(process)
            return _attend(process, name)
        finally:
            free.put(place)

    with ThreadPoolExecutor(len(places)) as pool:
        found = {name: pool.submit(work_off, name) for name in work}
        try:
            failed = {name: future.result() for name, future in found.items()}
        except KeyboardInterrupt:
            stopped = True
            for process in running:
                process.terminate()
            raise
    return {name: said for name, said in failed.items() if said is not None}


def _start(commands: Sequence[Command], place: Mapping[str, str]) -> subprocess.Popen[str]:
    line = [part for command in commands for part in (*command, THEN)][:-1]
    return subprocess.Popen(
        [sys.executable, "-m", "legenda.cli._worker", *line],
        env={**os.environ, **place},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def _attend(process: subprocess.Popen[str], name: str) -> str | None:
    """Shows a process's lines as they come; None when it ends well, else its last line and how it ended."""
    last = "it said nothing"
    with process:
        assert process.stderr is not None
        for line in process.stderr:
            last = line.rstrip()
            print(last if last.startswith(name) else f"{name}  {last}", file=sys.stderr, flush=True)
        code = process.wait()
    if code in (0, 2):
        return None if code == 0 else last
    return f"{'killed by signal' if code < 0 else 'exit code'} {abs(code)}, last line: {last}"
