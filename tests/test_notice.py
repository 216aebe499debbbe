"""NOTICE names every packaged file of others, and states the licenses that the model card states."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ASSETS = ROOT / "src" / "legenda" / "assets"
NOTICE = (ROOT / "NOTICE").read_text(encoding="utf-8")
CARD = (ROOT / "docs" / "reference" / "photo.md").read_text(encoding="utf-8")


def test_every_packaged_file_is_named_and_every_named_file_is_packaged():
    packaged = {path.name for path in ASSETS.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")}
    gallery = {path.name for path in (ROOT / "docs" / "gallery").iterdir()}
    named = set(re.findall(r"[\w-]+\.(?:jpg|json|onnx|safetensors|txt)\b", NOTICE))
    assert packaged - named == set()
    assert named - packaged - gallery == set()


def test_the_model_card_has_the_networks_and_licenses_of_the_notice():
    networks = re.findall(r"^    ([\w+-]+), \d+ x \d+", NOTICE, flags=re.MULTILINE)
    assert len(networks) == 2
    row = next(line for line in CARD.splitlines() if line.startswith("| networks of the extractor"))
    assert all(network in row for network in networks)
    assert "Apache License 2.0" in NOTICE
    assert "Apache-2.0" in row
    row = next(line for line in CARD.splitlines() if line.startswith("| license"))
    for data in ("COCO", "CC BY 4.0"):
        assert data in NOTICE
        assert data in row
