"""Models on Hugging Face's hub, with a loopback server, and from the local cache without a network."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import legenda
from legenda.data.captions import ScenesData
from legenda.data.scenes import draw_scene, make_scene
from legenda.errors import CheckpointError, ConfigError
from legenda.hub import find_model, portable_name, unique_run_names

constants = pytest.importorskip("huggingface_hub.constants", reason="needs the extra hub")


PRIVATE = {
    "other": ["/home/someone/a.json", "../../someone/b.json", "hf:user/model"],
    "environment": {"legenda": "0.9", "torch": "3.0", "machine": "mine", "folder": "/home/someone"},
}


@pytest.fixture(scope="module")
def run(make_run):
    return make_run("ngsan", ScenesData(train=40, validation=2, test=3), **PRIVATE)


def test_a_run_is_pushed_and_opened_again(hub, run, run_command, tmp_path, monkeypatch):
    assert run_command(f"evaluate {run} --split test --beam-size 1")[0] == 0
    code, out, err = run_command(f"push {run} somebody/scenes --license cc-by-4.0 --private")
    assert code == 0, err
    assert out == f"{hub.url}/somebody/scenes\n"
    assert [entry.get("visibility", entry.get("private")) in ("private", True) for entry in hub.created] == [True]
    files = hub.files["somebody/scenes"]
    assert sorted(files) == ["README.md", "config.json", "model.safetensors", "vocabulary.txt"]
    assert files["model.safetensors"] == (run / "model.safetensors").read_bytes()
    config = json.loads(files["config.json"])
    public = {"other": ["a.json", "b.json", "hf:user/model"], "environment": {"legenda": "0.9", "torch": "3.0"}}
    assert config == json.loads((run / "config.json").read_text()) | public
    card = files["README.md"].decode()
    scores = json.loads((run / "evaluation_test.json").read_text())["scores"]
    assert f"| CIDEr-D | {scores['CIDEr-D']:.4f} | 0." in card
    assert "license: cc-by-4.0" in card
    for fact in (
        "ngsan, ",
        "kind=scenes, train=40",
        "legenda 0.9, torch 3.0",
        "| extractor of the features | scenes |",
        "Split test, 3 examples",
    ):
        assert fact in card

    files["pytorch_model.bin"] = files["modeling.py"] = b"raise SystemExit"
    draw_scene(make_scene("fresh", 0)).save(tmp_path / "scene.png")
    expected = run_command(f"caption {tmp_path / 'scene.png'} --model {run}")
    monkeypatch.chdir(tmp_path)
    assert run_command("caption scene.png --model somebody/scenes")[1] == "scene.png: " + expected[1].split(": ")[1]
    downloaded = {path.rsplit("/")[-1] for method, path in hub.requests if "resolve" in path}
    assert downloaded == {"config.json", "model.safetensors", "vocabulary.txt"}
    hub.server_close()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert list(unique_run_names([Path("somebody/scenes"), run])) == ["scenes", run.name]
    pipeline = legenda.open("somebody/scenes")
    assert pipeline.caption(tmp_path / "scene.png").text == expected[1].split(": ")[1].strip()
    for name in ("somebody/scenes", "photo", run):
        assert portable_name(find_model(name)) == name


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"pytorch_model.bin": b"", "config.json": b"{}"}, "has no model.safetensors; name a model that"),
        ({"config.json": b'{"model_type": "bert"}', "model.safetensors": b""}, 'has no usable "model" part'),
        ({"weights.pkl": b""}, "has no config.json"),
    ],
)
def test_other_repositories_are_one_sentence(hub, files, message):
    hub.files["somebody/other"] = files
    with pytest.raises((CheckpointError, ConfigError), match=message) as error:
        legenda.load("somebody/other")
    assert "\n" not in str(error.value)


def test_a_missing_model_and_a_missing_network_are_one_sentence(hub, run_command, run, tmp_path, monkeypatch):
    draw_scene(make_scene("fresh", 0)).save(tmp_path / "a.png")
    monkeypatch.chdir(tmp_path)
    start = time.monotonic()
    code, _, err = run_command("caption a.png --model somebody/nothing")
    assert code == 2
    assert "somebody/nothing" in err
    hub.shutdown()
    hub.server_close()
    for command in ("caption a.png --model somebody/nothing", f"push {run} somebody/nothing"):
        code, _, err = run_command(command)
        assert (code, err.count("\n")) == (2, 1), err
        assert "check the name and the network" in err
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert "check the name and the network" in run_command("caption a.png --model somebody/nothing")[2]
    assert time.monotonic() - start < 10


def test_the_extractor_of_a_strangers_run_is_fetched_only_where_that_is_allowed(hub, make_run, run_command, tmp_path):
    transformers = pytest.importorskip("transformers", reason="needs the extra vision")
    sizes = {"hidden_size": 192, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    config = transformers.ViTConfig(**sizes, image_size=16, patch_size=8)
    transformers.ViTModel(config).save_pretrained(tmp_path / "backbone")
    processor = transformers.ViTImageProcessor(size={"height": 16, "width": 16}, image_mean=[0.5] * 3)
    processor.save_pretrained(tmp_path / "backbone")
    hub.files["stranger/backbone"] = {path.name: path.read_bytes() for path in (tmp_path / "backbone").iterdir()}
    run = make_run("transformer", ScenesData(train=40, validation=2), extractor="hf:stranger/backbone")
    draw_scene(make_scene("fresh", 0)).save(tmp_path / "a.png")
    caption = f"caption {tmp_path / 'a.png'} --beam-size 1 --model {run}"
    for command in (caption, f"serve {run} --port 0"):
        code, _, err = run_command(command)
        assert code == 2
        assert "--allow-download" in err
    with pytest.raises(ConfigError, match="allow_download=True"):
        legenda.open(run)
    assert not [path for _, path in hub.requests if "stranger" in path]
    code, expected, err = run_command(f"{caption} --allow-download")
    assert code == 0, err
    assert hub.requests
    hub.requests.clear()
    assert run_command(caption)[:2] == (0, expected)
    assert hub.requests == []
    assert run_command(f"{caption} --extractor hf:stranger/backbone")[:2] == (0, expected)
    assert hub.requests


@pytest.mark.parametrize("value", [None, "0", "1"])
def test_the_hub_learns_no_versions_unless_its_user_says_so(value):
    environment = {name: text for name, text in os.environ.items() if name != "HF_HUB_DISABLE_TELEMETRY"}
    environment |= {} if value is None else {"HF_HUB_DISABLE_TELEMETRY": value}
    code = "import legenda; from huggingface_hub import constants; print(constants.HF_HUB_DISABLE_TELEMETRY)"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(value != "0")
