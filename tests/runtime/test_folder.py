"""Files of an exported folder that are missing, damaged or a stranger's are named in one sentence."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import legenda
from legenda.errors import CheckpointError
from legenda.runtime.captioner import DECODER, ENCODER, SETTINGS, VOCABULARY, OnnxCaptioner, digest


@pytest.fixture
def folder(exported, tmp_path) -> Path:
    return Path(shutil.copytree(exported, tmp_path / "copy"))


def change(folder: Path, **values) -> None:
    """Change settings, with the digests of the files that are there."""
    content = json.loads((folder / SETTINGS).read_text())
    digests = {name: digest(folder / name) for name in (ENCODER, DECODER, VOCABULARY)}
    (folder / SETTINGS).write_text(json.dumps(content | {"digests": digests} | values))


def refused(folder: Path, *names: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        legenda.open(folder)
    assert "\n" not in str(caught.value)
    for name in names:
        assert name in str(caught.value)


@pytest.mark.parametrize("name", [ENCODER, DECODER, VOCABULARY])
def test_a_missing_or_changed_file_is_named(folder, name):
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[:-9])
    refused(folder, name)
    (folder / name).unlink()
    refused(folder, name)
    (folder / name).mkdir()
    refused(folder, name)


def test_an_export_of_a_later_format_names_the_version_that_it_needs(folder):
    content = json.loads((folder / SETTINGS).read_text())
    assert content["legenda"] == legenda.__version__
    change(folder, format_version=content["format_version"] + 1, legenda="99.1", parts_of_then={})
    refused(folder, SETTINGS, "legenda>=99.1")


@pytest.mark.parametrize("name", [ENCODER, DECODER, VOCABULARY])
def test_a_file_that_is_too_large_is_not_read(folder, name):
    with (folder / name).open("r+b") as file:
        file.truncate(2**31 + 1)  # sparse: it takes no space
    refused(folder, name, "MiB")


@pytest.mark.parametrize("name", [ENCODER, DECODER])
def test_a_damaged_file_of_the_right_digest_is_named(folder, name, capfd):
    content = (folder / name).read_bytes()
    for damaged in (content[:1000], content.replace(b"Transpose", b"Tr\xcb\xffspose")):
        (folder / name).write_bytes(damaged)
        change(folder)
        refused(folder, name)
    assert capfd.readouterr() == ("", "")  # ONNX Runtime's own messages are in the error


@pytest.mark.parametrize(
    "values",
    [
        {"feature_dim": 0},
        {"feature_dim": "6"},
        {"unknown": 1},
        {"generation_config": {"max_length": -1}},
        {"generation_config": {"eos_token_id": 10**6}},
        {"model": None},
        {"digests": 7},
        {"format": "torch"},
    ],
    ids=str,
)
def test_settings_that_are_wrong_are_refused(folder, values):
    change(folder, **values)
    refused(folder, str(folder))


@pytest.mark.parametrize("content", ["", "[]", "{}", "NaN", "[" * 9999])
def test_settings_that_are_none_are_refused(folder, content):
    (folder / SETTINGS).write_text(content)
    refused(folder, SETTINGS)


def test_words_of_another_model_are_refused(folder):
    words = json.loads((folder / VOCABULARY).read_text())
    for content in ([*words, "other"], words[:-1], {"a": 1}, [1, 2], ["a", "a"]):
        (folder / VOCABULARY).write_text(json.dumps(content))
        change(folder)
        refused(folder, "")


def save(folder: Path, name: str, nodes, outputs=("y",), weights=(), domains=("",)) -> None:
    onnx = pytest.importorskip("onnx", reason="needs the extra onnx")
    from onnx import helper

    value = lambda name: helper.make_tensor_value_info(name, 1, ["n"])  # noqa: E731
    graph = helper.make_graph(nodes, "g", [value("x")], [value(name) for name in outputs], list(weights))
    imports = [helper.make_opsetid(domain, 18 if not domain else 1) for domain in domains]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=10), folder / name)
    change(folder)


@pytest.mark.parametrize("name", [ENCODER, DECODER])
def test_foreign_graphs_are_refused(folder, name):
    helper = pytest.importorskip("onnx.helper", reason="needs the extra onnx")
    save(folder, name, [helper.make_node("Relu", ["x"], ["y"])])
    refused(folder, name)
    save(folder, name, [helper.make_node("Relu", ["x"], ["y"], domain="a.stranger")], domains=("", "a.stranger"))
    refused(folder, name)


def test_weights_outside_the_folder_are_not_read(folder, tmp_path, monkeypatch):
    onnx = pytest.importorskip("onnx", reason="needs the extra onnx")
    weights = np.ones(4, np.float32)
    (tmp_path / "secret").write_bytes(weights.tobytes())
    monkeypatch.chdir(tmp_path)
    for location in (str(tmp_path / "secret"), "../secret", "secret"):
        tensor = onnx.TensorProto(name="w", data_type=1, dims=[4], data_location=onnx.TensorProto.EXTERNAL)
        tensor.external_data.add(key="location", value=location)
        save(folder, ENCODER, [onnx.helper.make_node("Add", ["x", "w"], ["y"])], weights=[tensor])
        refused(folder, ENCODER)


def test_a_graph_that_fails_when_it_runs_is_one_sentence(exported):
    captioner = OnnxCaptioner.load(exported)
    width = captioner.settings.feature_dim
    images = [(np.ones((1, width), np.float32), np.array([[0, 0, 1, 1]], np.float32))]

    broken = OnnxCaptioner(
        captioner.settings, captioner.vocabulary, captioner.encoder, captioner.encoder, captioner.folder
    )
    with pytest.raises(CheckpointError, match="ngsan"):
        broken.search(images, broken.generation_config)
