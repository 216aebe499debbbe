"""Run damaged files through the command line, in child processes that are used again, and judge how each case ends.

A case is a subject, a seed and a number, from which it is made again: --only SUBJECT --seed SEED --case NUMBER. It ends
with exit code 0 and a finite output, or is refused with exit code 2 and one sentence. Anything else is a finding:

    traceback, code     an exception that is no sentence; an exit code other than 0 and 2
    crash, hang         the process died, or did not end after 10 s of its own or 40 s on the clock, less those that it
                        waited for a processor
    memory              its resident memory rose over 1.5 GB
    sentence            a refusal without a sentence, or with warnings, control characters or over 2,000 characters
    output              another output than that of the valid file, where the format has checksums; NaN; partial files
"""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import blind_spots
import model_subjects
import stranger_subjects
import subjects
from formats import mutate
from subjects import ARGUMENTS, Subject

BUILDERS: dict[str, Callable[[Path], list[Subject]]] = {
    "features": subjects.feature_stores,
    "captions": subjects.captions,
    "data": subjects.questions,
    "run": model_subjects.trained,
    "image": model_subjects.images,
    "score": model_subjects.scored,
    "recipe": model_subjects.recipes,
    "import": model_subjects.released,
    "more": model_subjects.remaining,
    "blind": blind_spots.blind_spots,
    "hub": stranger_subjects.hub_data,
    "tables": stranger_subjects.tables,
    "memory": stranger_subjects.sized,
}
"""The functions that write valid files, by the first part of their subjects' names."""
TIMEOUT = 10
_PATIENCE = 4
MAX_MEMORY_MIB = 1500
_MAX_SENTENCE = 2000
_CASES_OF_A_CHILD = 1000
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_TIMES = re.compile(r"[\d,.]+ (?:images|s\b|steps)(?:/s)?(?: of training)?|\d+ images/s|[\d,.]+ MB")
_TERMINAL = re.compile(r"\x1b\[[\d;?]*[A-Za-z]|\r")


@dataclass
class Tally:
    """What the cases of a subject came to, how many there were, and the CPU seconds that they took."""

    cases: int = 0
    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)


class Child:
    """A process that runs commands, replaced when it has died."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._process, self._left = folder, None, 0
        self.warm: set[str] = set()

    def run(self, arguments: list[str], limit: float = TIMEOUT) -> dict[str, Any]:
        """Return how a command ended; `code` is None where the process died or had to be ended after its limit."""
        if self._process is None:
            self._start()
        process: Any = self._process
        self._left -= 1
        process.stdin.write(json.dumps(arguments).encode() + b"\n")
        process.stdin.flush()
        began, clock, ready = self._cpu_seconds(), self._clock(), False
        while not ready and self._clock() < clock + _PATIENCE * limit and self._cpu_seconds() < began + limit:
            ready = bool(select.select([process.stdout], [], [], 1)[0])
        line = process.stdout.readline() if ready else b""
        if line:
            return json.loads(line)
        ended = {"code": None, "out": "", "err": "", "trace": "", "peak": 0.0, "cpu": 0.0}
        if not ready:
            process.kill()
        status = process.wait()
        ended["trace"] = "hang" if not ready else f"crash: the process ended with {status}"
        self._process = None
        self.warm.clear()
        return ended

    def _start(self) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200", "TERM": "dumb", "HF_HUB_OFFLINE": "1"}
        command = [sys.executable, str(Path(__file__).with_name("child.py")), str(self._folder)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        self._left = _CASES_OF_A_CHILD

    def renew(self) -> None:
        """End a process that has run many commands."""
        if self._left <= 0:
            self.close()

    def _cpu_seconds(self) -> float:
        assert self._process is not None
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _clock(self) -> float:
        """Return the time, less what the process has waited for a processor, which others may have taken."""
        assert self._process is not None
        waited = Path(f"/proc/{self._process.pid}/schedstat")
        return time.monotonic() - (int(waited.read_text().split()[1]) / 1e9 if waited.exists() else 0)

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
            self.warm.clear()


@dataclass(frozen=True)
class Case:
    """One damaged copy of a subject's files."""

    subject: Subject
    seed: int
    number: int

    @property
    def repeat(self) -> str:
        """Return the options that repeat it."""
        return f"--only {self.subject.name} --seed {self.seed} --case {self.number}"

    def make(self, folder: Path) -> str:
        """Copy the valid files to a folder, damage one of them, and return how."""
        shutil.copytree(self.subject.folder, folder)
        random = Random(f"{self.seed} {self.subject.name} {self.number}")
        if self.subject.damage is not None:
            return self.subject.damage(folder, random)
        return mutate(folder / random.choice(self.subject.damaged()), random)

    def commands(self, folder: Path) -> list[list[str]]:
        """Return the command lines that read the folder."""
        path = folder / ARGUMENTS
        more = json.loads(path.read_text()) if path.exists() else []
        return [[*(part.format(folder) for part in line.split()), *more] for line in self.subject.commands]


def _pipes(folder: str, names: list[str]) -> list[str]:
    """Return the names of pipes and devices, which are not copied."""
    return [name for name in names if (path := Path(folder, name)).exists() and not (path.is_file() or path.is_dir())]


def normalize(text: str, folder: Path) -> str:
    """Return an output without the folder, times and sizes."""
    return _TIMES.sub("", _TERMINAL.sub("", text.replace(str(folder), "FOLDER")))


def judge(ended: dict[str, Any], valid: str, output: str, *, exact: bool, numbers: bool = True) -> tuple[str, str]:
    """Return "equal", "refused", "other" (data that are valid too) or the kind of a finding, and its details.

    numbers: whether nan and inf in the output are numbers, not words of a vocabulary.
    """
    if ended["trace"]:
        kind = ended["trace"].split(":")[0]
        return (kind if kind in ("hang", "crash") else "traceback"), ended["trace"][-3000:]
    if ended["cpu"] > TIMEOUT:
        return "hang", f"{ended['cpu']:.0f} s"
    if ended["peak"] > MAX_MEMORY_MIB:
        return "memory", f"{ended['peak']:.0f} MiB"
    error = _TERMINAL.sub("", ended["err"])
    if ended["code"] not in (0, 2):
        return "code", f"exit code {ended['code']}: {error[-500:]}"
    if _CONTROL.search(ended["out"].replace("\x1b[", "") if ended["code"] == 0 else error + ended["out"]):
        return "sentence", f"control characters: {(error + ended['out'])!r:.600}"
    if "Warning" in error or "Error:" in error:
        return "sentence", error[-600:]
    if ended["code"] == 2:
        last = error.strip().split("\n")[-1]
        if not last.startswith(("legenda ", "╭", "╰")) or len(error) > _MAX_SENTENCE * 3 or len(last) > _MAX_SENTENCE:
            return "sentence", f"{len(error)} characters: {error[:300]!r} ... {error[-300:]!r}"
        return "refused", last
    if numbers and re.search(r"(?<!such as )\b(nan|inf)\b", ended["out"]) and not re.search(r"\b(nan|inf)\b", valid):
        return "output", f"NaN: {ended['out'][-500:]}"
    if output == valid:
        return "equal", ""
    return ("output" if exact else "other"), output[-500:]


class Campaign:
    """Valid files of some subjects, their outputs, a child process, and what was found."""

    def __init__(self, folder: Path, saved: Path, only: str | None = None, child: Any = None) -> None:
        self._folder, self._saved = folder, saved
        self.child = child or Child(folder)
        wanted = [name for name in BUILDERS if only is None or name == only.split(".")[0]]
        with (folder / "built.txt").open("w") as log, redirect_stdout(log), redirect_stderr(log):
            every = [subject for name in wanted for subject in BUILDERS[name](folder / "valid" / name)]
        self.subjects = [subject for subject in every if only is None or subject.name.startswith(only)]
        self.tallies = {subject.name: Tally() for subject in self.subjects}
        self._valid: dict[str, list[str]] = {}

    def valid_outputs(self, subject: Subject) -> list[str]:
        """Return the outputs of the valid files, which are the same in every process, the first ones slower."""
        self.child.renew()
        if subject.name not in self.child.warm:
            outputs = self._outputs(subject, "valid")
            if self._valid.setdefault(subject.name, outputs) != outputs:
                raise ValueError(f"{subject.name} has two outputs for one valid file: {outputs}")
            self.child.warm.add(subject.name)
        return self._valid[subject.name]

    def _outputs(self, subject: Subject, name: str) -> list[str]:
        with TemporaryDirectory(dir=self._folder, prefix=name) as parent:
            folder = Path(parent, "case")
            shutil.copytree(subject.folder, folder)
            outputs = []
            for command in Case(subject, 0, 0).commands(folder):
                ended = self.child.run(command, 6 * TIMEOUT)
                if ended["trace"] or (ended["code"] != 0 and "recipe" not in subject.name):
                    raise ValueError(f"{subject.name}: {ended}")
                outputs.append(normalize(ended["out"], folder))
            return outputs

    def run(self, case: Case) -> str | None:
        """Run one case, again in a new process where it needed too much; return what was found, or None."""
        valid, tally = self.valid_outputs(case.subject), self.tallies[case.subject.name]
        tally.cases += 1
        with TemporaryDirectory(dir=self._folder) as parent:
            folder = Path(parent, "case")
            what = case.make(folder)
            for command, expected in zip(case.commands(folder), valid, strict=True):
                kind, details = self._run(command, expected, folder, case.subject)
                if kind in ("hang", "crash", "memory"):
                    shutil.rmtree(folder)
                    case.make(folder)
                    self.child.close()
                    self.valid_outputs(case.subject)
                    kind, details = self._run(command, expected, folder, case.subject)
                tally.counts[kind] += 1
                if kind not in ("equal", "refused", "other"):
                    return self._save(case, folder, f"{kind}: {what}\nlegenda {' '.join(command)}\n{details}")
        return None

    def _run(self, command: list[str], expected: str, folder: Path, subject: Subject) -> tuple[str, str]:
        ended = self.child.run(command)
        self.tallies[subject.name].seconds += ended["cpu"] or TIMEOUT
        numbers = not subject.name.startswith("run.vocabulary")
        output = normalize(ended["out"], folder)
        kind, details = judge(ended, expected, output, exact=subject.exact, numbers=numbers)
        if kind in ("equal", "other") and subject.check is not None and (wrong := subject.check(ended["out"])):
            return "output", wrong
        left = [path.name for path in folder.rglob("*.partial")]
        return ("output", f"left behind: {left}") if left and kind not in ("hang", "crash") else (kind, details)

    def _save(self, case: Case, folder: Path, text: str) -> str:
        name = f"{case.subject.name}-{case.seed}-{case.number}"
        shutil.rmtree(self._saved / name, ignore_errors=True)
        shutil.copytree(folder, self._saved / name, symlinks=True, ignore=_pipes)
        text = f"{text}\nagain: python tests/fuzz {case.repeat}\n"
        (self._saved / name / "FINDING.txt").write_text(text, encoding="utf-8", errors="replace")
        self.tallies[case.subject.name].findings.append(text)
        return text
