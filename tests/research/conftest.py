"""What the tests of research scripts share."""

import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

RESEARCH = Path(__file__).resolve().parents[2] / "research"
for _folder in sorted(path.parent for path in RESEARCH.glob("*/*.py")):
    if str(_folder) not in sys.path:  # as of a script that is run
        sys.path.append(str(_folder))


@pytest.fixture
def run_script(capfd, monkeypatch) -> Callable[..., tuple[int, str, str]]:
    """Runs a script of research/ with arguments; gives exit code, standard output and standard error."""

    def call(script: str | Path, *arguments: object) -> tuple[int, str, str]:
        capfd.readouterr()
        path = str(RESEARCH / script)
        monkeypatch.setattr(sys, "argv", [path, *map(str, arguments)])
        code = 0
        try:
            runpy.run_path(path, run_name="__main__")
        except SystemExit as stop:
            code = int(stop.code or 0)
        output = capfd.readouterr()
        return code, output.out, output.err

    return call
