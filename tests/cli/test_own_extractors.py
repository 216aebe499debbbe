"""Extractors of the user: captions, training and evaluation on their features, and what is wrong with them."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from PIL import Image

from command_results import SHORT, TINY, error_of, everything_in
from legenda.cli.main import main
from legenda.features import PackedFeatureStore, write_store

pytestmark = pytest.mark.usefixtures("one_thread")

EXTRACTOR = '''
import numpy as np

def extract(pictures):
    """Return the mean colors of the left and the right half; the upper left pixel selects an error."""
    given = []
    for picture in pictures:
        pixels = np.asarray(picture, dtype=np.float32) / 255
        middle = pixels.shape[1] // 2
        halves = [pixels[:, :middle].mean((0, 1)), pixels[:, middle:].mean((0, 1))]
        features = np.stack([np.concatenate([half, [1.0]]) for half in halves])
        boxes = np.array([[0.0, 0.0, 0.5, 1.0], [0.5, 0.0, 1.0, 1.0]])
        match tuple(np.asarray(picture)[0, 0]):
            case (1, 1, 1):
                features[0, 0] = np.nan
            case (2, 2, 2):
                raise RuntimeError("out of memory")
        given.append((features, boxes))
    return given
'''

THREADS = """
import numpy as np
import torch

def extract(pictures):
    return [(np.full((1, 1), torch.get_num_threads(), np.float32), None) for _ in pictures]
"""


@pytest.fixture(scope="module")
def photographs(tmp_path_factory) -> Path:
    """Eight random images, an extractor, their features, annotations, and a transformer trained on them."""
    folder = tmp_path_factory.mktemp("photographs")
    (folder / "pictures").mkdir()
    images = []
    for number, split in enumerate(["train"] * 4 + ["val"] * 2 + ["test"] * 2):
        picture = np.random.default_rng(number).integers(10, 255, (9, 12, 3), dtype=np.uint8)
        Image.fromarray(picture).save(folder / "pictures" / f"{number}.png")
        images.append({"filename": f"{number}.png", "split": split, "sentences": [{"raw": "A dog."}, {"raw": "Dogs."}]})
    (folder / "dataset.json").write_text(json.dumps({"images": images}))
    (folder / "mine.py").write_text(EXTRACTOR)
    features = folder / "features.safetensors"
    main(f"extract {folder / 'pictures'} --extractor {folder / 'mine.py'} --out {features}".split())
    main(f"train flickr8k.transformer --out {folder / 'run'} {data_options(folder)} {TINY} {SHORT}".split())
    return folder


def data_options(folder: Path, features: str = "features.safetensors") -> str:
    annotations = folder / "dataset.json"
    return f"data.annotations={annotations} data.features={folder / features} data.min_count=1"


@pytest.mark.parametrize(("options", "expected"), [("", 4), ("--workers 2", 2), ("--workers 1", 4)])
def test_features_are_extracted_with_all_threads_of_torch(photographs, run_command, tmp_path, options, expected):
    (tmp_path / "threads.py").write_text(THREADS)
    pictures, out = photographs / "pictures", tmp_path / "f.safetensors"
    torch.set_num_threads(4)
    code, _, err = run_command(f"extract {pictures} --extractor {tmp_path / 'threads.py'} --out {out} {options}")
    assert (code, torch.get_num_threads()) == (0, 4), err
    torch.set_num_threads(1)
    assert set(safetensors.torch.load_file(out)["features"].flatten().tolist()) == {expected}


def test_images_are_captioned_with_a_user_defined_extractor(photographs, run_command):
    store = PackedFeatureStore(photographs / "features.safetensors")
    assert len(store) == 8
    assert (store.feature_dim, store.has_boxes) == (4, True)
    assert store.extractor.name == "mine"
    code, out, _ = run_command(f"evaluate {photographs / 'run'} --split test")
    assert code == 0
    assert "CIDEr-D" in out
    assert "truth" not in out
    expected = json.loads((photographs / "run" / "evaluation_test.json").read_text())["captions"]
    picture, extractor = photographs / "pictures" / "6.png", photographs / "mine.py"
    code, out, _ = run_command(f"caption {picture} --model {photographs / 'run'} --extractor {extractor}")
    assert (code, out) == (0, f"{picture}: {expected['6']}\n")


def test_captioning_needs_the_extractor_of_the_run(photographs, run_command, tmp_path, caplog):
    command = f"caption {photographs / 'pictures'} --model {photographs / 'run'}"
    assert "--extractor mine.py" in error_of(run_command(command))
    assert "but scenes is scenes" in error_of(run_command(f"{command} --extractor scenes"))
    changed = tmp_path / "mine.py"
    changed.write_text(EXTRACTOR + "\nVERSION = '2'\n")
    message = "has the version '2', not ''; use the extractor of the training, or add --ignore-extractor-mismatch"
    assert message in error_of(run_command(f"{command} --extractor {changed}"))
    expected = run_command(f"{command} --extractor {photographs / 'mine.py'}")
    with caplog.at_level("WARNING"):
        found = run_command(f"{command} --extractor {changed} --ignore-extractor-mismatch")
    assert found[:2] == expected[:2]
    assert "has the version '2', not ''; the results may be meaningless" in caplog.text


@pytest.mark.parametrize(("shade", "message"), [(1, "NaN"), (2, "out of memory")])
def test_an_image_with_invalid_features_is_named_and_left_out(photographs, run_command, tmp_path, shade, message):
    Image.new("RGB", (6, 6), (shade, shade, shade)).save(tmp_path / "faulty.png")
    shutil.copy(photographs / "pictures" / "0.png", tmp_path / "a.png")
    out = tmp_path / "f.safetensors"
    code, _, err = run_command(f"extract {tmp_path} --extractor {photographs / 'mine.py'} --out {out}")
    skipped, sentence = err.splitlines()
    assert code == 2
    assert message in skipped
    assert "faulty" in skipped
    assert sentence.endswith("1 of 2 images were skipped; repair or leave out those named above")
    assert PackedFeatureStore(out).ids == ("a",)


def test_evaluation_on_features_of_another_extractor_is_rejected(photographs, run_command, tmp_path):
    features = tmp_path / "f.safetensors"
    write_store(
        features, [(str(n), np.ones((1, 4)), np.array([[0, 0, 1, 1]])) for n in range(8)], extractor="other-00000000"
    )
    run = tmp_path / "run"
    shutil.copytree(photographs / "run", run, ignore=shutil.ignore_patterns("evaluation*"))
    config = json.loads((run / "config.json").read_text())
    config["data"]["features"] = str(features)
    (run / "config.json").write_text(json.dumps(config))
    before = everything_in(tmp_path)
    sentence = error_of(run_command(f"evaluate {run}"))
    assert "f.safetensors was made by the extractor other-00000000" in sentence
    name = PackedFeatureStore(photographs / "features.safetensors").extractor
    assert f"was trained on features of {name}" in sentence
    assert everything_in(tmp_path) == before
    assert run_command(f"evaluate {run} --ignore-extractor-mismatch")[0] == 0
