"""Every script of research/ starts: those with options print their help, the others have a `main`."""

import re
import runpy

import pytest

from conftest import RESEARCH

SCRIPTS = [path for path in sorted(RESEARCH.glob("*/*.py")) if "__main__" in path.read_text()]


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: str(path.relative_to(RESEARCH)))
def test_a_script_starts(run_script, path, monkeypatch):
    monkeypatch.syspath_prepend(path.parent)
    try:
        if re.search("argparse|tyro", path.read_text()):
            code, out, _ = run_script(path, "--help")
            assert (code, bool(out.strip())) == (0, True)
        else:
            assert callable(runpy.run_path(str(path), run_name="imported")["main"])
    except ModuleNotFoundError as error:
        if str(error.name).startswith("legenda") or list(RESEARCH.glob(f"*/{error.name}.py")):
            raise
        pytest.skip(f"needs the package {error.name}")
