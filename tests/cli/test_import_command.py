"""A released checkpoint on disk becomes a run that the other commands take."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from command_results import error_of
from legenda.cli.main import main
from legenda.features import write_store

NUMBERS = Path(__file__).parents[1] / "importers" / "data" / "abl_base.npz"
WORDS = [f"w{number}" for number in range(49)] + ["UNK"]
EXTRACTOR = """
import numpy as np

def extract(pictures):
    return [(np.full((2, 64), np.asarray(p).mean() / 255, np.float32), np.array([[0, 0, 1, 1]] * 2)) for p in pictures]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A checkpoint's words, an extractor, two pictures with captions and their features."""
    folder = tmp_path_factory.mktemp("released")
    with np.load(NUMBERS) as arrays:
        weights = {name[3:]: arrays[name] for name in arrays.files if name.startswith("sd/")}
    np.savez(folder / "model.npz", **weights)
    (folder / "words.txt").write_text("\n".join(WORDS) + "\n")
    (folder / "made.py").write_text(EXTRACTOR)
    images, stored = [], []
    for number in range(2):
        name = f"{number}.png"
        Image.new("RGB", (8, 8), (90 * number, 50, 20)).save(folder / name)
        images.append({"filename": name, "split": "val", "sentences": [{"raw": "w1 w2 w3"}, {"raw": "w4 w5"}]})
        stored.append((str(number), np.random.default_rng(number).random((3, 64), np.float32), None))
    (folder / "dataset.json").write_text(json.dumps({"images": images}))
    write_store(folder / "features.safetensors", stored, extractor="anything")
    return folder


@pytest.fixture(scope="module")
def run(folder):
    main(f"import aoanet {folder / 'model.npz'} --vocabulary {folder / 'words.txt'} --out {folder / 'run'}".split())
    return folder / "run"


def test_it_says_what_it_made_and_what_comes_next(run_command, folder):
    line = f"import aoanet {folder / 'model.npz'} --vocabulary {folder / 'words.txt'} --out {folder / 'other'}"
    code, out, _ = run_command(line)
    assert code == 0
    assert "aoanet" in out
    assert "51 words" in out
    assert "next: legenda caption IMAGES" in out
    assert "holds a run already" in error_of(run_command(line))


def test_pictures_are_captioned_with_any_extractor_of_its_features(run_command, folder, run):
    code, out, _ = run_command(f"caption {folder / '0.png'} --model {run} --extractor {folder / 'made.py'}")
    assert code == 0
    assert set(out.split(": ")[1].split()) <= {*WORDS, "<unk>"}
    assert "--extractor" in error_of(run_command(f"caption {folder / '0.png'} --model {run}"))


def test_it_is_evaluated_on_data_that_is_named(run_command, folder, run):
    data = f"--annotations {folder / 'dataset.json'} --features {folder / 'features.safetensors'}"
    code, out, _ = run_command(f"evaluate {run} {data}")
    assert code == 0
    assert "CIDEr-D" in out
    assert len(json.loads((run / "evaluation_val.json").read_text())["captions"]) == 2
    for wrong, output in [("", "imported without data"), (f"--annotations {folder / 'dataset.json'}", "--features")]:
        assert output in error_of(run_command(f"evaluate {run} {wrong}"))


def test_a_wrong_kind_writes_nothing(run_command, folder):
    line = f"import xlan {folder / 'model.npz'} --vocabulary {folder / 'words.txt'} --out {folder / 'none'}"
    assert "model.npz lacks" in error_of(run_command(line))
    assert not (folder / "none").exists()


def test_a_folder_of_a_killed_import_is_replaced(run_command, folder):
    out = folder / "new"
    (folder / ".new.0123abcd.partial").mkdir()
    (folder / ".new.0123abcd.partial" / "vocabulary.txt").write_text("w")
    line = f"import aoanet {folder / 'model.npz'} --vocabulary {folder / 'words.txt'} --out {out}"
    assert run_command(line)[0] == 0
    assert {path.name for path in out.iterdir()} == {"config.json", "model.safetensors", "vocabulary.txt"}
    assert not list(folder.glob(".new*"))


def test_a_byte_order_mark_is_no_part_of_a_word(run_command, folder):
    (folder / "bom.txt").write_text("\ufeff" + "\n".join(WORDS) + "\n")
    line = f"import aoanet {folder / 'model.npz'} --vocabulary {folder / 'bom.txt'} --out {folder / 'bom'}"
    assert run_command(line)[0] == 0
    assert "\ufeff" not in (folder / "bom" / "vocabulary.txt").read_text()


@pytest.mark.parametrize("name", ["config.json", "vocabulary.txt", "model.safetensors"])
@pytest.mark.parametrize("kind", ["device", "pipe"])
def test_what_is_no_regular_file_of_a_run_is_refused(run_command, folder, run, tmp_path, name, kind):
    shutil.copytree(run, tmp_path / "copy")
    (tmp_path / "copy" / name).unlink()
    if kind == "pipe":
        os.mkfifo(tmp_path / "pipe")
    (tmp_path / "copy" / name).symlink_to("/dev/zero" if kind == "device" else tmp_path / "pipe")
    line = f"caption {folder / '0.png'} --model {tmp_path / 'copy'} --extractor {folder / 'made.py'}"
    assert "is no regular file" in error_of(run_command(line))
