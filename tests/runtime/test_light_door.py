"""What runs in a process where PyTorch, jaxtyping, lightning-fabric and SciPy cannot be imported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from legenda.cli.main import COMMANDS
from legenda.data.scenes import draw_scene, make_scenes

BLOCKED = """
import sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "jaxtyping", "lightning_fabric", "scipy"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Finder())
from legenda.cli.main import main
"""


def call(code: str, folder: Path) -> str:
    """Run code after the import of `main` in a new process, in a folder; return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED + code], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def folder(exported, tmp_path_factory) -> Path:
    """Scenes, captions and references, and the exported model as `model`."""
    path = tmp_path_factory.mktemp("door")
    (path / "images").mkdir()
    for number, scene in enumerate(make_scenes("fresh", 2)):
        draw_scene(scene).save(path / "images" / f"{number}.png")
    for name, captions in (("one", ["a dog runs", "a cat sits"]), ("two", ["a dog", "a red cat"])):
        entries = [{"image_id": image, "caption": caption} for image, caption in enumerate(captions)]
        (path / f"{name}.json").write_text(json.dumps(entries))
    (path / "references.json").write_text('{"0": ["a dog runs", "dogs run"], "1": ["the cat sits"]}')
    (path / "model").symlink_to(exported)
    return path


def test_images_are_captioned(folder, run_and_export, run_command):
    printed = call("main(['caption', 'images', '--model', 'model', '--save-attention', 'sheets'])", folder)
    assert len(list((folder / "sheets").iterdir())) == 2
    code, expected, _ = run_command(f"caption {folder / 'images'} --model {run_and_export[0]} --device cpu")
    assert code == 0
    assert printed.splitlines() == [line.replace(f"{folder}/", "") for line in expected.splitlines()]
    call("main(['caption', 'images', '--model', 'model', '--format', 'json', '--out', 'captions.json'])", folder)
    assert len(json.loads((folder / "captions.json").read_text())) == 2


@pytest.mark.parametrize("engine", ["local", "pool"])
def test_a_job_captions_into_shards(folder, engine):
    """Each engine writes the same lines; a pool's processes import PyTorch no more than this one."""
    call(f"main(['caption', 'images', '--model', 'model', '--out', 'shards_{engine}', '--engine', '{engine}'])", folder)
    lines = (folder / f"shards_{engine}" / "captions-00000000.jsonl").read_text().splitlines()
    assert [json.loads(line)["image"] for line in lines] == ["images/0.png", "images/1.png"]
    assert all(json.loads(line)["captions"][0]["caption"] for line in lines)


def test_no_file_is_written_into_the_home_folder(folder, tmp_path):
    """Telemetry of ONNX Runtime, which is off, writes a number of the machine there."""
    variables = {
        "HOME": str(tmp_path),
        **{name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ},
    }
    code = "from legenda.cli.main import main; main(['caption', 'images', '--model', 'model'])"
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, env=variables, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.rglob("*")) == []


def test_the_installation_is_described(folder):
    printed = call("main(['inspect', '--environment', '--json'])", folder)
    assert "No module named 'torch'" in json.loads(printed)["torch"]


def test_captions_are_scored_and_compared(folder):
    assert "CIDEr-D" in call("main(['score', 'one.json', 'references.json', '--metrics', 'fast'])", folder)
    printed = call("main(['compare', 'one.json', 'two.json', '--references', 'references.json'])", folder)
    assert "2 of 2 predictions differ" in printed


def test_captions_are_reported(folder):
    call(
        "main(['report', 'one.json', 'two.json', '--annotations', 'references.json', '--images', 'images'])",
        folder,
    )
    page = (folder / "report.html").read_text()
    assert "the cat sits" in page
    assert page.count("data:image/jpeg;base64,") == 2


def test_a_store_of_features_and_an_exported_model_are_inspected(folder):
    np.savez(folder / "1.npz", feat=np.ones((3, 4), np.float32), bbox=np.array([[0.1, 0.1, 0.5, 0.5]] * 3, np.float32))
    (folder / "features").mkdir()
    (folder / "1.npz").rename(folder / "features" / "1.npz")
    assert "1" in call("main(['inspect', 'features'])", folder)
    facts = json.loads(call("main(['inspect', 'model', '--verify', '--json'])", folder))
    assert facts["extractor"] == "scenes"
    assert facts["problems"] == []
    assert len(facts["files"]) == 4


def test_a_model_is_served(folder):
    pytest.importorskip("fastapi", reason="needs the extra serve")
    code = """
import threading, time, urllib.request
from legenda.cli import serve
from legenda.cli.options import parse
from legenda.serve import server

def request(app, host, port, *_, on_stop, **__):
    from starlette.testclient import TestClient
    with TestClient(app, base_url="http://127.0.0.1") as client, open("images/0.png", "rb") as image:
        print(client.post("/api/captions", files={"image": image}).json()["captions"][0]["text"])
        print(client.get("/").status_code, client.get("/api/models").json()[0]["parameters"] > 0)

server.run_server = request
main(["serve", "model", "photo", "--port", "0"])
"""
    caption, status = call(code, folder).splitlines()
    assert caption
    assert status == "200 True"


def test_help_is_printed(folder):
    commands = ["caption", "serve", "score", "compare", "report", "inspect", "export", "convert"]
    assert set(commands) <= set(COMMANDS)
    code = f"""
for command in {commands}:
    try:
        main([command, "--help"])
    except SystemExit as stop:
        print("exit code", stop.code)
"""
    *pages, end = call(code, folder).split("exit code 0\n")
    assert not end
    assert all(command in page for command, page in zip(commands, pages, strict=True))


def test_models_and_recipes_are_listed(folder):
    assert "87,369,858" in call("main(['models'])", folder)
    assert "137,521,826" in call("main(['models', 'x-transformer'])", folder)
    printed = call("main(['recipes'])", folder)
    assert "scenes.ngsan" in printed
    assert "ngsan.table2.*" in printed


def test_what_needs_pytorch_says_so_in_one_sentence(folder):
    commands = ["train", "scenes.ngsan"], ["export", "photo"], ["evaluate", "runs/a"], ["recipes", "scenes.ngsan"]
    code = f"""
import contextlib, sys
for arguments in {commands}:
    with contextlib.redirect_stderr(sys.stdout):
        try:
            main(arguments)
        except SystemExit as stop:
            print(stop.code)
"""
    lines = call(code, folder).splitlines()
    assert lines[1::2] == ["2"] * len(commands)
    for sentence in lines[::2]:
        assert "PyTorch" in sentence
        assert "[torch]" in sentence
