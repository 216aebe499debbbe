"""Run commands in parallel, each in a process, so that one that fails does not affect the others.

`python -m legenda.cli._parallel` is such a process: it runs commands one after another, and exits when its parent does.
The parent keeps the other end of the standard input open. It closes when the parent exits, even when it is killed, so
no process goes on writing to a run folder that another one may resume.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from legenda.terminal import escape_controls

_SEPARATOR = "--then"
"""Separates two commands."""


def run_parallel(
    jobs: Mapping[str, Sequence[Sequence[str]]], environments: Sequence[Mapping[str, str]]
) -> dict[str, str]:
    """Run the commands of each job one after the other, and as many jobs at once as there are environments.

    jobs: the commands of each job by its name, which prefixes every line that they print. environments: further
    environment variables of the jobs that run at once, such as a device each.
    Return the reason of failure of each job that failed, by its name, in one phrase.
    """
    spare, local = list(environments), threading.local()
    running: list[subprocess.Popen[str]] = []
    stopped = False

    def take_environment() -> None:
        local.environment = spare.pop(0)

    def run_job(name: str) -> str | None:
        if stopped:
            return "was not started"
        process = _start(jobs[name], local.environment)
        running.append(process)
        return _wait(process, name)

    with ThreadPoolExecutor(len(environments), initializer=take_environment) as pool:
        try:
            reasons = dict(zip(jobs, pool.map(run_job, jobs), strict=True))
        except KeyboardInterrupt:
            stopped = True
            for process in running:
                process.terminate()
            raise
    return {name: reason for name, reason in reasons.items() if reason is not None}


def _start(commands: Sequence[Sequence[str]], environment: Mapping[str, str]) -> subprocess.Popen[str]:
    arguments = [argument for command in commands for argument in (*command, _SEPARATOR)][:-1]
    return subprocess.Popen(
        [sys.executable, "-m", "legenda.cli._parallel", *arguments],
        env={**os.environ, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def _wait(process: subprocess.Popen[str], name: str) -> str | None:
    """Print a process's lines as they come; return None when it succeeds, else its last line and exit code."""
    last = "it printed nothing"
    with process:
        assert process.stderr is not None
        for line in process.stderr:
            last = escape_controls(line.rstrip())
            print(last if last.startswith(name) else f"{name}  {last}", file=sys.stderr, flush=True)
        code = process.wait()
    if code in (0, 2):
        return None if code == 0 else last
    return f"{'killed by signal' if code < 0 else 'exit code'} {abs(code)}, last line: {last}"


def _exit_with_parent() -> None:
    """Exit when the standard input closes; read unbuffered, as the lock of Python's buffer would block the exit."""
    while os.read(sys.stdin.fileno(), 1):
        pass
    os._exit(1)


def _run(arguments: list[str]) -> None:
    """Run the commands; the first that fails ends the process with its exit code."""
    from legenda.cli.main import main

    threading.Thread(target=_exit_with_parent, daemon=True).start()
    while arguments:
        end = arguments.index(_SEPARATOR) if _SEPARATOR in arguments else len(arguments)
        main(arguments[:end])
        arguments = arguments[end + 1 :]


if __name__ == "__main__":
    _run(sys.argv[1:])
