"""METEOR 1.5, scored by its authors' Java program, which runs beside us as a process of its own.

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
import threading
import weakref
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import IO, Self

from legenda.errors import UserError
from legenda.metrics.java import PLAIN, VARIABLE, find_java, find_program

_SEPARATOR = "|||"
# What the program, its reader of lines or its protocol would take for the end of a caption.
_UNSAFE = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]|\|\|\|+")
_LAST_LINES = 20
_GRACE = 10.0  # seconds for a process that has closed its output to end


@dataclass(frozen=True)
class MeteorScores:
    """METEOR of a corpus and of each image, in 0..1, and the counts of each image that METEOR adds up.

    The corpus' METEOR is that of the summed counts, not the mean of the images'.
    """

    corpus: float
    per_image: list[float]
    counts: list[tuple[float, ...]]


class Meteor:
    """The METEOR program, started when first needed; use it in a `with` statement, or `close` it.

    It takes about six seconds of processor time to start and 1.1 GB of memory, so keep one for many calls. Several
    threads may share one: their calls wait for one another.

    timeout: seconds of silence from the program after which it is given up.
    """

    def __init__(self, *, timeout: float = 120.0) -> None:
        self.timeout = timeout
        self._lock = threading.Lock()
        self._child: _Child | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the program; a later call of `score` starts it anew."""
        with self._lock:
            self._end()

    def score(self, candidates: Sequence[str], references: Sequence[Sequence[str]]) -> MeteorScores:
        """Scores one caption an image against its references: tokens joined by spaces, as PTB tokens are.

        Line breaks, other control characters and "|||" count as spaces. An empty caption scores 0.
        Raises UserError when the extra or Java is missing, and when the program stays silent or ends; the next call
        starts it anew.
        """
        if not candidates:
            raise UserError("METEOR has no captions to score; give at least one")
        if not all(references):
            raise UserError("METEOR has a caption without references; give at least one for each")
        questions = [
            f" {_SEPARATOR} ".join(("SCORE", *map(_clean, group), _clean(candidate)))
            for candidate, group in zip(candidates, references, strict=True)
        ]
        with self._lock:
            try:
                counts = self._ask(questions, len(questions))
                numbers = [tuple(map(float, line.split())) for line in counts]
                question = f" {_SEPARATOR} ".join(("EVAL", *counts))
                *per_image, corpus = map(float, self._ask([question], len(counts) + 1))
            except ValueError as error:
                self._end()
                raise UserError(f"METEOR gave an answer that is no number ({error}); {_HINT}") from error
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
    # In a folder whose name has a space the program does not find its paraphrases by itself.
    options = ["-", "-", "-stdio", "-l", "en", "-norm", "-a", str(paraphrases)]
    return [str(java), "-Xmx2G", *PLAIN, "-jar", str(jar), *options]


def _clean(caption: str) -> str:
    return _UNSAFE.sub(" ", caption)


class _Child:
    """A process that answers lines with lines; threads keep its three pipes moving, so that it never blocks."""

    def __init__(self, command: Sequence[str]) -> None:
        try:
            # In a session of its own, an interrupt reaches it only through us, and a wrapper around java ends with it.
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise UserError(f"{command[0]} does not start ({error.strerror or error}); {_HINT}") from error
        self.answers: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self.complaints: deque[str] = deque(maxlen=_LAST_LINES)
        # A forked copy of this interpreter must not end its parent's process.
        self.end = weakref.finalize(self, _finish, self.process, os.getpid())
        stdout, stderr = self.process.stdout, self.process.stderr
        assert stdout is not None
        assert stderr is not None
        threading.Thread(target=_read, args=(stdout, self.answers), daemon=True).start()
        threading.Thread(target=_keep_last, args=(stderr, self.complaints), daemon=True).start()

    def ask(self, lines: Sequence[str], answers: int, timeout: float) -> list[str]:
        """Writes lines while reading answers; UserError when the process ends or says nothing for `timeout` seconds."""
        stdin = self.process.stdin
        assert stdin is not None
        threading.Thread(target=_write, args=(stdin, lines), daemon=True).start()
        told: list[str] = []
        while len(told) < answers:
            try:
                answer = self.answers.get(timeout=timeout)
            except queue.Empty:
                raise UserError(f"METEOR has said nothing for {timeout:g} seconds and was ended; {_HINT}") from None
            if answer is None:
                raise UserError(f"METEOR ended {self._how()} before it had answered; {_HINT}")
            told.append(answer)
        return told

    def _how(self) -> str:
        try:
            code = self.process.wait(timeout=_GRACE)
        except subprocess.TimeoutExpired:
            return "its output"
        how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
        reason = next((line for line in self.complaints if "Exception" in line or "Error" in line), "")
        return f"{how} ({reason})" if reason else how


def _read(stdout: IO[bytes], answers: queue.SimpleQueue[str | None]) -> None:
    with stdout:
        for line in stdout:
            answers.put(line.decode("utf-8", "replace").strip())
    answers.put(None)


def _keep_last(stderr: IO[bytes], complaints: deque[str]) -> None:
    with stderr:
        for line in stderr:
            complaints.append(line.decode("utf-8", "replace").strip())


def _write(stdin: IO[bytes], lines: Sequence[str]) -> None:
    try:
        for line in lines:
            stdin.write(line.encode("utf-8", "replace") + b"\n")
        stdin.flush()
    except (OSError, ValueError):
        return  # the process has ended, which its reader finds out


def _finish(process: subprocess.Popen[bytes], owner: int) -> None:
    if os.getpid() != owner:
        return
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert process.stdin is not None
    with contextlib.suppress(OSError):  # what it had not read is lost, and may be
        process.stdin.close()
