"""The sample images of the served page."""

from pathlib import Path

import pytest
from PIL import Image

from legenda.evaluation.runs import CaptionerRun, load_captioner_run

pytest.importorskip("fastapi", reason="needs the extra serve")

from legenda.report.images import packaged_photographs
from legenda.serve.samples import default_photographs

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def photographed(noisy_photographs, make_run, tmp_path) -> CaptionerRun:
    """A model trained on photographs p0 to p2; p3 and p4 are for validation, p5 is for testing."""
    text = noisy_photographs.data.annotations.read_text()
    (tmp_path / "dataset.json").write_text(text.replace('"p5.jpg", "split": "val"', '"p5.jpg", "split": "test"'))
    (tmp_path / "images").symlink_to(noisy_photographs.folder)
    data = noisy_photographs.data.replace(annotations=tmp_path / "dataset.json")
    return load_captioner_run(make_run("transformer", data))


def test_default_photographs_are_found_next_to_the_annotations(photographed, noisy_photographs, make_run, tmp_path):
    imported = load_captioner_run(make_run("xlan", noisy_photographs.data, imported={"kind": "xlan"}))
    found = default_photographs([imported, photographed])
    packaged = packaged_photographs()
    assert [path.name for path in found] == ["p3.jpg", "p4.jpg", "p5.jpg", *(path.name for path in packaged)]
    (tmp_path / "images").unlink()
    assert default_photographs([photographed]) == packaged
    (tmp_path / "dataset.json").unlink()
    assert default_photographs([photographed]) == packaged


def test_packaged_photographs_are_small_and_named_with_their_sources():
    notice = (ROOT / "NOTICE").read_text(encoding="utf-8")
    assert [path.stem for path in packaged_photographs()] == ["astronaut", "cat", "coffee", "rocket"]
    for path in packaged_photographs():
        assert f"src/legenda/assets/photographs/{path.name}" in notice
        assert path.stat().st_size <= 60_000
        assert max(Image.open(path).size) <= 640
