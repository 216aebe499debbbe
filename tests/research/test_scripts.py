"""Every script of research/ can be imported."""

import runpy
import sys
from pathlib import Path

import pytest

RESEARCH = Path(__file__).resolve().parents[2] / "research"
SCRIPTS = sorted(path.relative_to(RESEARCH) for path in RESEARCH.glob("*/*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=str)
def test_a_script_can_be_imported(script, monkeypatch, tmp_path):
    monkeypatch.setenv("BACKBONES", str(tmp_path))  # of flickr8k_extractor.py
    monkeypatch.syspath_prepend(RESEARCH / script.parent)
    known = set(sys.modules)
    try:
        runpy.run_path(str(RESEARCH / script), run_name="imported")
    except ModuleNotFoundError as error:
        if (RESEARCH / script.parent / f"{error.name}.py").exists() or str(error.name).startswith("legenda"):
            raise
        pytest.skip(f"needs the package {error.name}")
    finally:
        for name in set(sys.modules) - known:
            if getattr(sys.modules[name], "__file__", None) and str(RESEARCH) in str(sys.modules[name].__file__):
                del sys.modules[name]
