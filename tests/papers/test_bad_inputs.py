"""Vocabularies, features and word vectors that do not fit a model are refused in one sentence."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from default_data import IMAGES, WIDTH, write_default_data
from legenda.cli.main import main
from legenda.data.features.packed import write_store

OWN = "mine@00000000#1:12:0.5,0.1"
"""The extractor of the training, with its fingerprint."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """The default data, features of an extractor, and a run that was trained on them."""
    folder = tmp_path_factory.mktemp("data")
    write_default_data(folder)
    rng = np.random.default_rng(0)
    features = ((str(n), rng.standard_normal((3, WIDTH)), None) for n in IMAGES)
    write_store(folder / "own.safetensors", features, extractor=OWN)
    small = "model.dim=16 model.ff_dim=16 model.num_layers=1 --stages first training.epochs=1"
    data = f"data.annotations={folder}/dataset_coco.json data.features={folder}/own.safetensors"
    main(f"train coco.transformer --out {folder}/run {data} {small}".split())
    shutil.copytree(folder / "run", folder / "cut")
    words = (folder / "run" / "vocabulary.txt").read_text().splitlines()
    (folder / "cut" / "vocabulary.txt").write_text("\n".join(words[:-1]) + "\n")
    return folder


@pytest.fixture
def refused(run_command, folder, monkeypatch) -> Callable[[str], str]:
    """Run a command that ends with exit code 2; return its sentence."""
    monkeypatch.chdir(folder)

    def call(line: str) -> str:
        code, _, err = run_command(line)
        *progress, sentence = err.splitlines()
        assert (code, all("reading " in line or "images to train on" in line for line in progress)) == (2, True)
        return sentence

    return call


def test_a_vocabulary_of_another_size(refused):
    sentence = refused("evaluate cut --split val --annotations dataset_coco.json --features own.safetensors")
    assert "cut/vocabulary.txt has 8 tokens where cut/config.json has vocab_size=9; restore" in sentence
    sentence = refused("train coco.transformer --init-from cut --out new data.features=own.safetensors")
    assert "cut was trained with vocab_size=9, not 8; restore the vocabulary.txt of its training" in sentence


@pytest.mark.parametrize("recipe", ["vqa2.mcan_small", "refcoco.mcan"])
def test_word_vectors_of_another_width(refused, recipe):
    Path("glove.txt").write_text("the 1 2 3\nwhat 4 5 6\n")
    sentence = refused(f"train {recipe} --out new data.vectors=glove.txt")
    assert "the word vectors have 3 dimensions but mcan" in sentence
    assert "takes 300; give others with data.vectors=FILE, or set model.word_dim=3" in sentence
