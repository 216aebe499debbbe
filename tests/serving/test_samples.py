"""Which pictures the served page offers to try."""

from dataclasses import replace
from pathlib import Path

import pytest

from legenda.evaluation.runs import load_captioner_run
from legenda.extractors import load_extractor

pytest.importorskip("fastapi", reason="needs the extra serve")

from legenda.serving.engine import Served
from legenda.serving.samples import photographs_of, sample_pictures

EXTRACTOR = Path(__file__).resolve().parents[2] / "examples" / "my_extractor.py"


def _served(run: Path) -> Served:
    return Served(load_captioner_run(run), load_extractor(EXTRACTOR))


@pytest.fixture
def photographed(noisy_photographs, make_run, tmp_path) -> Served:
    """A model of photographs p0 to p2 for training, p3 and p4 for validation and p5 for a test."""
    text = noisy_photographs.data.annotations.read_text()
    (tmp_path / "dataset.json").write_text(text.replace('"p5.jpg", "split": "val"', '"p5.jpg", "split": "test"'))
    (tmp_path / "images").symlink_to(noisy_photographs.folder)
    data = replace(noisy_photographs.data, annotations=tmp_path / "dataset.json")
    return _served(make_run("transformer", data))


def test_photographs_that_a_model_did_not_learn_from_are_found_where_they_lie(photographed, served, tmp_path):
    found = photographs_of([*served.values(), photographed])
    assert [path.name for path in found] == ["p3.jpg", "p4.jpg", "p5.jpg"]
    (tmp_path / "images").unlink()
    assert photographs_of([photographed]) == []
    (tmp_path / "dataset.json").unlink()
    assert photographs_of([photographed]) == []


def test_models_of_scenes_and_imported_ones_bring_no_photographs(noisy_photographs, make_run, served):
    imported = _served(make_run("xlan", noisy_photographs.data, imported={"kind": "xlan"}))
    assert photographs_of([*served.values(), imported]) == []


def test_photographs_of_one_name_are_all_offered(tmp_path):
    photographs = [tmp_path / folder / "a.jpg" for folder in ("x", "y", "z")]
    samples = sample_pictures(tmp_path, photographs, scenes=True)
    assert list(samples)[:6] == [f"scene-{number}.png" for number in range(1, 7)]
    assert dict(list(samples.items())[6:]) == dict(zip(("a.jpg", "a-2.jpg", "a-3.jpg"), photographs, strict=True))
