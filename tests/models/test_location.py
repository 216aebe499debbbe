"""The folder of a model by path, packaged name or id of the hub."""

from pathlib import Path

import pytest

from legenda.errors import CheckpointError
from legenda.hub import find_model
from legenda.run_folder import ASSETS


def make_folder(path):
    path.mkdir(parents=True)
    (path / "config.json").write_text("{}")
    return path


def test_a_folder_that_exists_precedes_other_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    packaged = find_model("photo")
    assert packaged.parent == ASSETS
    (tmp_path / "photo").mkdir()  # a folder of photographs
    assert find_model("photo") == packaged
    assert str(find_model(make_folder(tmp_path / "user" / "model").relative_to(tmp_path))) == "user/model"
    assert find_model(tmp_path / "photo") == tmp_path / "photo"


def test_only_user_and_model_name_a_model_of_the_hub(tmp_path, monkeypatch, hub):
    monkeypatch.chdir(tmp_path)
    hub.files["user/model-1.0"] = {"config.json": b"{}", "model.safetensors": b""}
    assert (find_model("user/model-1.0") / "config.json").read_text() == "{}"
    asked = len(hub.requests)
    assert asked
    for name in ("model", tmp_path / "absent", "a/b/c", "../b/c"):
        with pytest.raises(CheckpointError, match=Path(name).name):
            find_model(name)
    (tmp_path / "user" / "model-1.0" / "onnx").mkdir(parents=True)  # without a config.json
    assert str(find_model("user/model-1.0")) == "user/model-1.0"
    for seed in (10, 2):
        make_folder(tmp_path / "user" / "seeds" / f"seed{seed}")
    with pytest.raises(CheckpointError, match="seed2"):
        find_model("user/seeds")
    assert len(hub.requests) == asked
