"""METEOR 1.5, computed by its authors' Java program in a child process.

Sources: Denkowski and Lavie, "Meteor Universal: Language Specific Translation Evaluation for Any Target Language",
2014; pycocoevalcap 1.2 for the options of the program, to whose values every value is equal.
"""

from __future__ import annotations

import contextlib
import os
import queue
import re
import signal
import subprocess
import tempfile
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Self

from legenda.errors import DataError, LegendaError
from legenda.metrics.java import JAVA_OPTIONS, VARIABLE, find_java, find_program

_SEPARATOR = "|||"
# Characters that the program or its protocol interpret as the end of a caption.
_UNSAFE = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]|\|\|\|+")
_GRACE = 10.0  # seconds for a process to exit after closing its output


@dataclass(frozen=True)
class MeteorScores:
    """METEOR of a corpus and of each image, in 0..1, and the statistics of each image that METEOR sums.

    METEOR of the corpus is that of the summed statistics, not the mean over images.
    """

    corpus: float
    per_image: list[float]
    counts: list[tuple[float, ...]]


class Meteor:
    """The METEOR program, started at the first call; use it in a `with` statement, or `close` it.

    It takes about six CPU seconds to start and 1.1 GB of memory, so reuse one for many calls. Calls from several
    threads are serialized.

    timeout: seconds without output after which the program is killed.
    """

    def __init__(self, *, timeout: float = 120.0) -> None:
        self.timeout = timeout
        self._lock = threading.Lock()
        self._child: _Child | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the program; a later call of `score` restarts it."""
        with self._lock:
            self._end()

    def score(self, candidates: Sequence[str], references: Sequence[Sequence[str]]) -> MeteorScores:
        """Score one caption an image against its references, all of them PTB tokens joined by spaces.

        Line breaks, other control characters and "|||" count as spaces. An empty caption scores 0.
        Raise ConfigError where the extra or Java is missing, and LegendaError where the program exits or prints
        nothing; the next call restarts it.
        """
        if not candidates:
            raise DataError("there are no captions for METEOR to score; give at least one")
        if not all(references):
            raise DataError("a caption has no references for METEOR; give at least one for each")
        commands = [
            f" {_SEPARATOR} ".join(("SCORE", *map(_clean, group), _clean(candidate)))
            for candidate, group in zip(candidates, references, strict=True)
        ]
        with self._lock:
            try:
                counts = self._ask(commands, len(commands))
                numbers = [tuple(map(float, line.split())) for line in counts]
                command = f" {_SEPARATOR} ".join(("EVAL", *counts))
                *per_image, corpus = map(float, self._ask([command], len(counts) + 1))
            except ValueError as error:
                self._end()
                raise LegendaError(f"METEOR printed something other than numbers ({error}); {_HINT}") from error
            except BaseException:
                self._end()
                raise
        return MeteorScores(corpus, per_image, numbers)

    def _ask(self, lines: Sequence[str], answers: int) -> list[str]:
        if self._child is None:
            self._child = _Child(_command())
        return self._child.ask(lines, answers, self.timeout)

    def _end(self) -> None:
        if self._child is not None:
            self._child.end()
            self._child = None


_HINT = f"try again, or set {VARIABLE} to another java"


def _command() -> list[str]:
    java, jar = find_java(), find_program("METEOR", "meteor/meteor-1.5.jar")
    paraphrases = find_program("METEOR", "meteor/data/paraphrase-en.gz")
    # Without this option the program does not find its paraphrases in a folder whose name has a space.
    options = ["-", "-", "-stdio", "-l", "en", "-norm", "-a", str(paraphrases)]
    return [str(java), "-Xmx2G", *JAVA_OPTIONS, "-jar", str(jar), *options]


def _clean(caption: str) -> str:
    return _UNSAFE.sub(" ", caption)


class _Child:
    """A process that answers lines with lines; threads read and write its pipes, so that it never blocks."""

    def __init__(self, command: Sequence[str]) -> None:
        self.log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        try:
            # In a new session it receives no keyboard interrupt, and a wrapper script around java is killed with it.
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self.log,
                start_new_session=True,
            )
        except OSError as error:
            self.log.close()
            raise LegendaError(f"{command[0]} does not start ({error.strerror or error}); {_HINT}") from error
        self.answers: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        # A forked copy of this interpreter must not kill its parent's process.
        self.end = weakref.finalize(self, _finish, self.process, self.log, os.getpid())
        threading.Thread(target=_read, args=(self.process.stdout, self.answers), daemon=True).start()

    def ask(self, lines: Sequence[str], answers: int, timeout: float) -> list[str]:
        """Write lines while reading answers; raise LegendaError where it exits or prints nothing for too long."""
        threading.Thread(target=_write, args=(self.process.stdin, lines), daemon=True).start()
        lines_read: list[str] = []
        while len(lines_read) < answers:
            try:
                answer = self.answers.get(timeout=timeout)
            except queue.Empty:
                raise LegendaError(f"METEOR printed nothing for {timeout:g} seconds and was killed; {_HINT}") from None
            if answer is None:
                raise LegendaError(f"METEOR exited {self._describe_exit()} before it had answered; {_HINT}")
            lines_read.append(answer)
        return lines_read

    def _describe_exit(self) -> str:
        try:
            code = self.process.wait(timeout=_GRACE)
        except subprocess.TimeoutExpired:
            return "after closing its output"
        how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
        self.log.seek(0)
        lines = (line.decode("utf-8", "replace").strip() for line in self.log)
        reason = next((line for line in lines if "Exception" in line or "Error" in line), "")
        return f"{how} ({reason})" if reason else how


def _read(stdout: IO[bytes], answers: queue.SimpleQueue[str | None]) -> None:
    with stdout:
        for line in stdout:
            answers.put(line.decode("utf-8", "replace").strip())
    answers.put(None)


def _write(stdin: IO[bytes], lines: Sequence[str]) -> None:
    try:
        for line in lines:
            stdin.write(line.encode("utf-8", "replace") + b"\n")
        stdin.flush()
    except (OSError, ValueError):
        return  # the process has exited, which its reader detects


def _finish(process: subprocess.Popen[bytes], log: IO[bytes], owner: int) -> None:
    if os.getpid() != owner:
        return
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    log.close()
    assert process.stdin is not None
    with contextlib.suppress(OSError):  # unread input is discarded
        process.stdin.close()
