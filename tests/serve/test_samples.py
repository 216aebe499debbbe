"""The sample images of the served page."""

from pathlib import Path

import pytest
from PIL import Image

pytest.importorskip("fastapi", reason="needs the extra serve")

from legenda.report.images import packaged_photographs

ROOT = Path(__file__).resolve().parents[2]


def test_packaged_photographs_are_small_and_named_with_their_sources():
    notice = (ROOT / "NOTICE").read_text(encoding="utf-8")
    assert [path.stem for path in packaged_photographs()] == ["astronaut", "cat", "coffee", "rocket"]
    for path in packaged_photographs():
        assert f"src/legenda/assets/photographs/{path.name}" in notice
        assert path.stat().st_size <= 60_000
        assert max(Image.open(path).size) <= 640
