"""The wheel in an empty environment without PyTorch: it captions, scores and serves over HTTP."""

import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / ".ci" / "release_check.py"


@pytest.mark.slow
def test_the_wheel_works_without_pytorch(tmp_path, monkeypatch):
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(tmp_path / "pip"), "filelock"]
    if subprocess.run(pip, stderr=subprocess.DEVNULL, check=False).returncode:
        pytest.skip("needs a package index")
    spec = spec_from_file_location("release_check", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    release_check = module_from_spec(spec)
    spec.loader.exec_module(release_check)
    monkeypatch.delenv("PYTHONPATH", raising=False)  # the checkout must not stand for the installed wheel
    monkeypatch.setattr(release_check, "OUT", tmp_path)
    assert 50 < release_check.try_without_torch(release_check.build(), tmp_path / "light") < release_check.MAX_LIGHT_MB
