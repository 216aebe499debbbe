"""nocaps' annotations: scores in, near and out of domain."""

import json

import pytest

from command_results import error_of
from legenda.errors import DataError
from legenda.metrics import evaluate
from legenda.metrics.scoring import load_references

DOMAINS = ["in-domain", "out-domain", "near-domain", "in-domain", "out-domain", "near-domain"]
CAPTIONS = ["a dog runs", "a cat sits", "two red balls", "a man eats soup", "a blue kite", "some green grass"]


@pytest.fixture
def files(tmp_path):
    images = [{"id": n, "file_name": f"{n:016x}.jpg", "domain": domain} for n, domain in enumerate(DOMAINS)]
    annotations = [
        {"id": 10 * n + k, "image_id": n, "caption": text}
        for n, caption in enumerate(CAPTIONS)
        for k, text in enumerate((caption, f"{caption} outside"))
    ]
    content = {"images": images, "annotations": annotations}
    (tmp_path / "nocaps_val_4500_captions.json").write_text(json.dumps(content))
    predictions = [{"image_id": n, "caption": text} for n, text in enumerate(reversed(CAPTIONS))]
    predictions[0]["caption"], predictions[1]["caption"] = CAPTIONS[0], CAPTIONS[1]
    (tmp_path / "captions.json").write_text(json.dumps(predictions))
    return tmp_path, {str(p["image_id"]): p["caption"] for p in predictions}


def test_every_domain_is_scored_by_itself(files, run_command):
    folder, captions = files
    command = f"score {folder}/captions.json {folder}/nocaps_val_4500_captions.json --metrics fast --resamples 20"
    code, out, err = run_command(f"{command} --out {folder}/scores.json")
    assert code == 0, err
    results = json.loads((folder / "scores.json").read_text())
    references = {str(n): [text, f"{text} outside"] for n, text in enumerate(CAPTIONS)}
    for name, ids in {"in-domain": "03", "near-domain": "25", "out-domain": "14", "scores": "012345"}.items():
        expected = evaluate({i: captions[i] for i in ids}, {i: references[i] for i in ids}, metrics="fast").corpus
        assert results[name]["corpus"] == pytest.approx(expected)
        assert f"{name}: {len(ids)} images" in out


def test_images_of_one_domain_are_scored_by_themselves(files, run_command):
    folder, captions = files
    (folder / "captions.json").write_text(json.dumps({n: captions[n] for n in "03"}))
    command = f"score {folder}/captions.json {folder}/nocaps_val_4500_captions.json --metrics fast --resamples 20"
    assert "lacks 4 of the 6 images" in error_of(run_command(command))
    code, out, err = run_command(f"{command} --only-predicted")
    assert code == 0, err
    assert "in-domain: 2 images" in out
    assert "near-domain" not in out


def test_an_image_without_a_domain_is_named(files):
    folder, _ = files
    path = folder / "nocaps_val_4500_captions.json"
    content = json.loads(path.read_text())
    del content["images"][2]["domain"]
    path.write_text(json.dumps(content))
    with pytest.raises(DataError, match=r"images\[2\]"):
        load_references(path)
    for image in content["images"]:
        image.pop("domain", None)
    path.write_text(json.dumps(content))
    assert load_references(path).domains == {}
