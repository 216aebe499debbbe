"""The identity of an extractor: name, version, width and fingerprint, not the bytes of its file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

from legenda.errors import DataError
from legenda.extractors import Extractor, extract_store, load_extractor
from legenda.features.readers import open_features
from legenda.images.extractor import TOLERANCE, ExtractorIdentity, FrameSampling, find_mismatch

SOURCE = (Path(__file__).resolve().parents[2] / "examples" / "my_extractor.py").read_text(encoding="utf-8")
SCALED = SOURCE.replace("/ 255.0", "/ 255.0 * {factor}")


def written(folder: Path, source: str, name: str = "mine") -> Extractor:
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.py").write_text(source, encoding="utf-8")
    return load_extractor(folder / f"{name}.py")


@pytest.fixture
def recorded(tmp_path) -> ExtractorIdentity:
    """The identity that a store of the extractor holds."""
    Image.new("RGB", (20, 20), "red").save(tmp_path / "image.png")
    extract_store([tmp_path / "image.png"], written(tmp_path, SOURCE), tmp_path / "f.safetensors")
    return open_features(tmp_path / "f.safetensors").extractor


@pytest.mark.parametrize(
    "source",
    [SOURCE, SOURCE + "# a comment\n", SCALED.format(factor=1 + TOLERANCE / 2)],
    ids=["unchanged", "comment", "tolerance"],
)
def test_an_extractor_with_equal_features_is_the_same(tmp_path, recorded, source):
    assert find_mismatch(recorded, written(tmp_path / "other", source)) is None


@pytest.mark.parametrize(
    ("source", "name", "message"),
    [
        (SCALED.format(factor=1.1), "mine", "differs by 10% on the test image, where 1% is the limit"),
        (SOURCE.replace("reshape(-1, 3)", "reshape(-1, 6)").replace("GRID = 4", "GRID = 4"), "mine", "not compared"),
        (SOURCE + 'VERSION = "2"\n', "mine", "has the version '2', not ''"),
        (SOURCE, "yours", "is yours@"),
    ],
    ids=["scale", "fails", "version", "name"],
)
def test_what_differs_is_named(tmp_path, recorded, source, name, message):
    difference = find_mismatch(recorded, written(tmp_path / "other", source, name))
    assert difference is not None
    assert message in difference


def test_an_identity_is_read_back_from_each_of_its_forms(recorded):
    assert (recorded.name, recorded.feature_dim, recorded.version, len(recorded.digest)) == ("mine", 3, "", 8)
    assert len(recorded.fingerprint) == 7
    sampled = ExtractorIdentity(
        name="hf", model="a/b@c:d", regions=36, precision="bf16", frames=FrameSampling(num_frames=8)
    )
    assert str(sampled) == "hf:a/b@c:d@36regions@bf16@8frames"
    for identity in (recorded, sampled):
        stored = identity.to_json()
        assert ExtractorIdentity.read(stored, "here") == ExtractorIdentity.read(json.dumps(stored), "here") == identity
    short = ExtractorIdentity(name="hf", model="a/b@c:d")
    assert ExtractorIdentity.read("hf:a/b@c:d", "here") == short
    assert sampled.find_difference(short) == "is hf:a/b@c:d"


@pytest.mark.parametrize(
    "value",
    [
        *("{", '{"name": 1}', '{"name": "x", "name": "y"}'),
        *({"model": "x"}, {"name": "x", "colour": 1}, 7, {"name": "x", "regions": 0}),
        *({"name": "x", "frames": {}}, {"name": "x", "frames": {"num_frames": 2, "frame_rate": 1.0}}),
    ],
)
def test_what_is_no_identity_is_refused_by_the_name_of_its_file(value):
    with pytest.raises(DataError, match=r"^f\.json: "):
        ExtractorIdentity.read(value, "f.json")
