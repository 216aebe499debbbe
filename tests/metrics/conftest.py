"""Programs that stand in for Java."""

import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def fake_java(tmp_path, monkeypatch) -> Callable[[str], Path]:
    """Makes a Python program the `java` to use: `fake_java("print('hello')")`."""

    def make(code: str) -> Path:
        path = tmp_path / "java"
        path.write_text(f"#!{sys.executable}\nimport os, sys, time\n{code}\n", encoding="utf-8")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("LEGENDA_JAVA", str(path))
        return path

    return make


@pytest.fixture
def programs(tmp_path, monkeypatch) -> Path:
    """The folder of a package pycocoevalcap whose programs are empty files."""
    package = tmp_path / "packages" / "pycocoevalcap"
    for file in ("__init__.py", "spice/spice-1.0.jar", "meteor/meteor-1.5.jar", "meteor/data/paraphrase-en.gz"):
        (package / file).parent.mkdir(parents=True, exist_ok=True)
        (package / file).touch()
    monkeypatch.syspath_prepend(package.parent)
    monkeypatch.delitem(sys.modules, "pycocoevalcap", raising=False)
    return package
