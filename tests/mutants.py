"""Apply seeded faults to a copy of the package, one at a time, and report which of them the tests notice.

    python tests/mutants.py                 # each mutant against the tests that are named for it
    python tests/mutants.py --only 7        # one mutant
    python tests/mutants.py --full          # survivors of the named tests meet the whole of `make test`
    python tests/mutants.py --clean         # the named tests without a mutant: all must pass
    python tests/mutants.py --check         # only whether every mutant can be applied

The mutants stand in tests/mutants.toml. The work tree is never written to: the tests run in a temporary copy of the
checkout without ../shared. Exit code 1 where a mutant survives, 2 where one cannot be applied or its tests cannot run.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MUTANTS = Path(__file__).with_suffix(".toml")
_LEFT_OUT = shutil.ignore_patterns(".git", ".venv", ".hypothesis", ".*_cache", "__pycache__", "*.egg-info")
_TIMEOUT = 1800
"""Seconds for the tests of one mutant; a mutant that makes a test run longer counts as killed."""


class MutantError(Exception):
    """A mutant that cannot be applied, or whose tests cannot run."""


@dataclass(frozen=True)
class Mutant:
    """A fault: `old`, which occurs once in `file` below src/legenda, becomes `new`. tests: what to run first."""

    number: int
    fault: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.number:2} {self.file}: {self.fault}"

    def source(self, root: Path) -> Path:
        """The file to change in a checkout."""
        return root / "src" / "legenda" / self.file

    def find_problem(self, root: Path) -> str | None:
        """Say why the mutant cannot be applied: its anchor does not occur exactly once, or its first tests are gone."""
        if not self.source(root).is_file():
            return f"{self}: src/legenda/{self.file} does not exist; name the file where the code is now"
        found = self.source(root).read_text(encoding="utf-8").count(self.old)
        if found != 1:
            return f"{self}: expected {self.old!r} exactly once, found it {found} times; correct `old`"
        for test in self.tests:
            if not (root / test.partition("::")[0]).exists():
                return f"{self}: {test} does not exist; name the tests where they are now"
        return None


def read_mutants(path: Path = MUTANTS) -> list[Mutant]:
    """Return the mutants in the order of the file, numbered from 1."""
    entries = tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]
    return [
        Mutant(number, entry["fault"], entry["file"], entry["old"], entry["new"], tuple(entry["tests"]))
        for number, entry in enumerate(entries, start=1)
    ]


def copy_checkout(folder: Path) -> Path:
    """Copy what the tests read into a new folder whose parent holds nothing else, and return the copy."""
    copy = folder / "checkout"
    shutil.copytree(ROOT, copy, ignore=_LEFT_OUT)
    return copy


def run_tests(root: Path, tests: tuple[str, ...], *options: str) -> str | None:
    """Return the first test that fails, None where all pass; no tests stand for the whole of `make test`.

    Raises MutantError where pytest itself cannot run them.
    """
    paths = [str(root / "src"), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *options, *tests]
    try:
        done = subprocess.run(
            command, cwd=root, env=environment, capture_output=True, text=True, timeout=_TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired:
        return f"more than {_TIMEOUT} s"
    if done.returncode == 0:
        return None
    failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", done.stdout, re.MULTILINE)
    if failed is None:
        raise MutantError(f"pytest {' '.join(tests)} ended with code {done.returncode}:\n{done.stdout}{done.stderr}")
    return failed[1]


def apply(mutant: Mutant, root: Path) -> str:
    """Write the fault into the copy and return the text that was there."""
    path = mutant.source(root)
    text = path.read_text(encoding="utf-8")
    _write(path, text.replace(mutant.old, mutant.new))
    return text


def _write(path: Path, text: str) -> None:
    """Write source code, without what Python and numba compiled from the text before."""
    path.write_text(text, encoding="utf-8")
    shutil.rmtree(path.parent / "__pycache__", ignore_errors=True)


def find_killer(mutant: Mutant, root: Path, *, full: bool) -> str | None:
    """Return the first test that fails with the mutant; None where it survives."""
    before = apply(mutant, root)
    try:
        killer = run_tests(root, mutant.tests)
        if killer is None and full:
            killer = run_tests(root, (), "--numprocesses", "2")
    finally:
        _write(mutant.source(root), before)
    return killer


def main() -> int:
    """Run the mutants that the command line asks for, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=int, metavar="N", help="run mutant N alone")
    parser.add_argument("--full", action="store_true", help="run the whole fast suite on those that survive")
    parser.add_argument("--clean", action="store_true", help="run the first tests without any mutant")
    parser.add_argument("--check", action="store_true", help="report the mutants that cannot be applied, run nothing")
    options = parser.parse_args()
    mutants = read_mutants()
    chosen = [mutant for mutant in mutants if options.only in (None, mutant.number)]
    if not chosen:
        parser.error(f"--only expects a number from 1 to {len(mutants)}, not {options.only}")
    if problems := [problem for mutant in chosen if (problem := mutant.find_problem(ROOT))]:
        raise MutantError("\n".join(problems))
    if options.check:
        return 0
    survived = 0
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        root = copy_checkout(Path(folder))
        if options.clean:
            tests = tuple(sorted({test for mutant in chosen for test in mutant.tests}))
            failed = run_tests(root, tests)
            print("all pass" if failed is None else f"fails without a mutant: {failed}")
            return 0 if failed is None else 2
        for mutant in chosen:
            began = time.monotonic()
            killer = find_killer(mutant, root, full=options.full)
            survived += killer is None
            verdict = "SURVIVED" if killer is None else f"killed by {killer}"
            print(f"{mutant}\n   {verdict} ({time.monotonic() - began:.0f} s)", flush=True)
    print(f"{len(chosen) - survived} of {len(chosen)} killed")
    return 1 if survived else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except MutantError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
