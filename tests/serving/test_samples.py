"""The sample images of the served page."""

from dataclasses import replace
from pathlib import Path

import pytest

from legenda.evaluation.runs import load_captioner_run
from legenda.extractors import load_extractor

pytest.importorskip("fastapi", reason="needs the extra serve")

from legenda.serving.engine import LoadedModel
from legenda.serving.samples import held_out_photographs, sample_images

EXTRACTOR = Path(__file__).resolve().parents[2] / "examples" / "my_extractor.py"


def _load(run: Path) -> LoadedModel:
    return LoadedModel(load_captioner_run(run), load_extractor(EXTRACTOR))


@pytest.fixture
def photographed(noisy_photographs, make_run, tmp_path) -> LoadedModel:
    """A model trained on photographs p0 to p2; p3 and p4 are for validation, p5 is for testing."""
    text = noisy_photographs.data.annotations.read_text()
    (tmp_path / "dataset.json").write_text(text.replace('"p5.jpg", "split": "val"', '"p5.jpg", "split": "test"'))
    (tmp_path / "images").symlink_to(noisy_photographs.folder)
    data = replace(noisy_photographs.data, annotations=tmp_path / "dataset.json")
    return _load(make_run("transformer", data))


def test_held_out_photographs_are_found_next_to_the_annotations(photographed, served, tmp_path):
    found = held_out_photographs([*served.values(), photographed])
    assert [path.name for path in found] == ["p3.jpg", "p4.jpg", "p5.jpg"]
    (tmp_path / "images").unlink()
    assert held_out_photographs([photographed]) == []
    (tmp_path / "dataset.json").unlink()
    assert held_out_photographs([photographed]) == []


def test_models_of_scenes_and_imported_models_have_no_photographs(noisy_photographs, make_run, served):
    imported = _load(make_run("xlan", noisy_photographs.data, imported={"kind": "xlan"}))
    assert held_out_photographs([*served.values(), imported]) == []


def test_held_out_photographs_one_name_are_all_offered(tmp_path):
    photographs = [tmp_path / folder / "a.jpg" for folder in ("x", "y", "z")]
    samples = sample_images(tmp_path, photographs, scenes=True)
    assert list(samples)[:6] == [f"scene-{number}.png" for number in range(1, 7)]
    assert dict(list(samples.items())[6:]) == dict(zip(("a.jpg", "a-2.jpg", "a-3.jpg"), photographs, strict=True))
