"""`legenda inspect`: facts about feature stores and runs, and what is broken in them."""

import json
import shutil
import sys
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import legenda
from legenda.data.captions import ScenesData
from legenda.features import write_store
from legenda.io import read_json, write_json

BOX = np.array([[0, 0, 0.5, 0.5]])


def facts_of(out: str) -> dict[str, str]:
    pairs = (line.split("  ", 1) for line in out.splitlines() if "  " in line)
    return {name: value.strip() for name, value in pairs}


@pytest.fixture
def store(tmp_path, monkeypatch) -> Path:
    """A store of 130 images of 1 or 2 regions."""
    monkeypatch.chdir(tmp_path)
    boxes = np.repeat(BOX, 2, axis=0)
    entries = [(f"i{n}", np.full((1 + n % 2, 3), n, np.float32), boxes[: 1 + n % 2]) for n in range(130)]
    write_store("features.safetensors", entries, extractor="ones")
    return Path("features.safetensors")


def test_a_store_is_described(store, run_command):
    code, out, err = run_command(f"inspect {store}")
    assert (code, err) == (0, "")
    facts = facts_of(out)
    assert facts["layout"] == "packed safetensors"
    assert facts["images"] == "130, such as i0"
    assert facts["regions"].startswith("1 to 2 per image")
    assert (facts["dimensions"], facts["dtype"], facts["extractor"]) == ("3", "float16", "ones")
    assert facts["features"].startswith("0 to 129, mean ")
    assert facts["boxes"].endswith("mean area 0.250")
    assert facts["read"] == "100 images, 0 broken"
    assert "no problems found" not in out
    code, out, _ = run_command(f"inspect {store} --verify --json")
    found = json.loads(out)
    assert (code, found["read"], found["problems"]) == (0, "130 images, 0 broken", [])


@pytest.mark.parametrize("name", ["f.safetensors", "f.hdf5:grids", "f.lmdb"])
def test_a_store_that_is_missing_is_no_missing_model(run_command, name):
    code, _, err = run_command(f"inspect nowhere/{name}")
    assert code == 2
    assert "legenda convert" in err


def test_verify_compares_a_store_with_its_checksums(store, run_command):
    content = bytearray(store.read_bytes())
    content[content.index(np.full(6, 77.0, np.float16).tobytes())] ^= 1
    store.write_bytes(content)
    assert run_command(f"inspect {store}")[0] == 0
    code, out, _ = run_command(f"inspect {store} --verify")
    assert code == 2
    assert "problem: " in out
    assert "image 'i77' differs from its checksum; extract it again" in out


@pytest.fixture
def run(make_run, run_command) -> Path:
    folder = make_run("ngsan", ScenesData(train=40, validation=4, test=2), training={"epochs": 3})
    assert run_command(f"evaluate {folder}")[0] == 0
    return folder


def test_a_run_is_described_and_verified(run, run_command):
    code, out, err = run_command(f"inspect {run} --verify")
    assert (code, err) == (0, "")
    facts = facts_of(out)
    assert facts["model"].startswith("ngsan: ")
    assert facts["data"] == "kind=scenes  train=40  validation=4  test=2  families=['near', 'size', 'bind']"
    assert (facts["recipe"], facts["extractor"], facts["task"]) == ("scenes.ngsan", "scenes", "captioning")
    assert facts["training"] == "epochs=3"
    assert int(facts["parameters"].replace(",", "")) > 100
    assert "model.safetensors=" in facts["files"]
    assert facts["evaluation_val.json"].startswith("split=val  images=4  beam_size=3  scores=(")
    assert out.endswith("no problems found\n")


def test_a_run_may_have_a_colon_in_its_name(run, run_command, tmp_path):
    """A store of HDF5 may be named with one of its parts, as file.hdf5:grids."""
    named = tmp_path / "2026-11-28T10:30"
    shutil.copytree(run, named)
    code, out, err = run_command(f"inspect {named}")
    assert (code, err) == (0, "")
    assert facts_of(out)["recipe"] == "scenes.ngsan"


def test_a_damaged_run_is_named_by_verify(run, run_command):
    path = run / "evaluation_val.json"
    content = read_json(path)
    write_json(path, content | {"scores": content["scores"] | {"BLEU-1": 0.9}})
    write_json(run / "evaluation_test.json", [1])
    (run / "metrics.jsonl").write_text('{"step": 20}\n{"step": 1}\n')
    assert run_command(f"inspect {run}")[0] == 0
    code, out, err = run_command(f"inspect {run} --verify --json")
    assert code == 2
    problems = json.loads(out)["problems"]
    assert [part in problem for part, problem in zip(_PARTS, sorted(problems), strict=True)] == [True] * 3
    assert f"has {len(problems)} problems" in err
    weights = load_file(run / "model.safetensors")
    name = next(iter(weights))
    save_file(weights | {name: weights[name] * float("nan")}, run / "model.safetensors")
    (problem,) = json.loads(run_command(f"inspect {run} --verify --json")[1])["problems"]
    assert "values that are NaN or infinite" in problem
    (run / "model.safetensors").write_bytes(b"")
    (problem,) = json.loads(run_command(f"inspect {run} --verify --json")[1])["problems"]
    assert "model.safetensors" in problem


_PARTS = ("evaluation_test.json is not", "BLEU-1 0.9000, but", "metrics.jsonl is not in the order")


def test_the_installation_is_described_in_one_block(run_command, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    code, out, err = run_command("inspect --environment")
    assert (code, err) == (0, "")
    facts = facts_of(out)
    assert facts["legenda"].startswith(legenda.__version__)
    assert facts["torch"].startswith(torch.__version__)
    assert facts["numpy"] == np.__version__
    assert facts["devices"].startswith("cpu")
    assert "serve" in facts["extras"]
    assert "OMP_NUM_THREADS=1" in facts["variables"]
    assert str(Path.home()) not in out
    code, out, _ = run_command("inspect --environment --json")
    assert json.loads(out)["numpy"] == np.__version__


def test_the_commit_of_an_installation_from_git_is_known(monkeypatch, run_command, tmp_path):
    """As pip leaves it, on a machine without git."""
    installed = tmp_path / "legenda-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: legenda\nVersion: 1\n")
    source = {"url": "https://example.org/legenda.git", "vcs_info": {"vcs": "git", "commit_id": "0123abcd"}}
    write_json(installed / "direct_url.json", source)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PATH", "")
    code, out, _ = run_command("inspect --environment")
    assert code == 0
    assert facts_of(out)["legenda"].endswith("0123abcd")


@pytest.mark.parametrize("arguments", ["", "runs/demo --environment", "--environment --verify"])
def test_inspect_takes_either_a_path_or_the_environment(arguments, run_command):
    code, _, err = run_command(f"inspect {arguments}")
    assert code == 2
    assert "--environment" in err


def test_a_package_that_is_missing_or_broken_is_said_to_be_so(monkeypatch, run_command):
    def version(name: str) -> str:
        if name in ("av", "h5py"):
            raise metadata.PackageNotFoundError(name)
        return of_packages(name)

    of_packages = metadata.version
    monkeypatch.setattr(metadata, "version", version)
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    code, out, err = run_command("inspect --environment")
    assert (code, err) == (0, "")
    facts = facts_of(out)
    assert "video" in facts["extras missing"].split(", ")
    assert "video" not in facts["extras"].split(", ")
    assert "h5py" not in facts["packages of extras"]
    assert all("cannot be used" in facts[name] for name in ("torch", "onnxruntime"))
