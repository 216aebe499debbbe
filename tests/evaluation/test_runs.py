"""The data of a run, found by the paths in its config.json."""

import json
import shutil
from dataclasses import replace

import pytest

from legenda.evaluation.runs import load_run


@pytest.fixture
def folder(noisy_photographs, make_run, tmp_path):
    """A folder with a data set and, in runs/, a run that was trained on it."""
    here = tmp_path / "project"
    shutil.copytree(noisy_photographs.folder.parent, here / "data")
    data = replace(
        noisy_photographs.data,
        annotations=here / "data" / "dataset.json",
        features=here / "data" / "features.safetensors",
    )
    (here / "runs").mkdir()
    shutil.copytree(make_run("transformer", data, folder=here / "runs" / "trained"), here / "runs" / "x")
    return here


def test_paths_are_relative_to_the_run(folder, monkeypatch):
    config = json.loads((folder / "runs" / "x" / "config.json").read_text())
    assert config["data"]["annotations"] == "../../data/dataset.json"
    monkeypatch.chdir(folder / "runs")
    data = load_run("x").data()
    assert data.annotations == folder / "data" / "dataset.json"
    assert len(data.split("val")) == 3


def test_a_run_that_is_moved_with_its_data_finds_them(folder, tmp_path):
    moved = folder.rename(tmp_path / "elsewhere")
    data = load_run(moved / "runs" / "x").data()
    assert data.features == moved / "data" / "features.safetensors"
    assert len(data.split("val")) == 3


def test_a_run_that_is_moved_alone_finds_its_data_where_they_were(folder, tmp_path):
    path = folder / "runs" / "x" / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, "environment": {"folder": str(path.parent)}}))
    moved = (folder / "runs" / "x").rename(tmp_path / "alone")
    assert load_run(moved).data().annotations == folder / "data" / "dataset.json"
