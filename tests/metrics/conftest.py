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
