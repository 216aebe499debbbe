"""Exported captioners: ONNX and torch.export files equal PyTorch, and the example captions with onnxruntime alone."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import legenda
from legenda import export, hub
from legenda.decoding import greedy
from legenda.decoding.generation import GenerationConfig
from legenda.errors import install_line
from legenda.papers import get_recipe
from legenda.text import Vocabulary

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "caption_onnx.py"
WORDS, FEATURE_DIM, MAX_LENGTH = [f"w{number}" for number in range(9)], 6, 5
SIZES = {"dim": 8, "num_heads": 2, "num_layers": 1, "decoder_layers": 1, "ff_dim": 8, "mid_dim": 4}
FAMILIES = ("transformer", "xlan", "ngsan", "aoanet", "updown", "xtransformer", "mdsan", "coco.mdsan_paper", "meshed")
RULES = {"no_immediate_repeat": True, "suppress_tokens": (1, 4), "forbidden_last_tokens": (2,), "trigram_penalty": 2.0}


def create(name: str, *, recurrent: bool = False, **generation) -> legenda.models.Captioner:
    torch.manual_seed(1)
    name, overrides = (get_recipe(name).model, get_recipe(name).model_overrides) if "." in name else (name, {})
    overrides = {**overrides, "recurrent": True} if recurrent else overrides
    known = legenda.models.describe_model(name).config.model_fields
    sizes = {option: size for option, size in SIZES.items() if option in known}
    vocabulary = Vocabulary.build([WORDS], min_count=1)
    model = legenda.create_model(name, vocab_size=len(vocabulary), feature_dim=FEATURE_DIM, **sizes, **overrides).eval()
    model.vocabulary = vocabulary
    model.generation_config = GenerationConfig(max_length=MAX_LENGTH, **generation)
    return model


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_torch_files_equal_the_model(tmp_path, name, draw_regions):
    model = create(name)
    report = export.export_captioner(model, tmp_path / "out", format="torch")
    names = sorted(path.name for path in report.files)
    assert names == sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == ["decoder.pt2", "encoder.pt2", "export.json", "vocabulary.json"]
    assert report.max_difference < 1e-5
    # other numbers of images and regions, and more regions than a pair has channels (mid_dim)
    regions = draw_regions((9, 2, 3, 1), dim=FEATURE_DIM)
    encoder = torch.export.load(tmp_path / "out" / "encoder.pt2").module()
    memory = encoder({"features": regions.features, "boxes": regions.boxes, "mask": regions.mask})
    with torch.no_grad():
        torch.testing.assert_close(memory["memory.states"], model.encode(regions).states, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    "name", ["transformer", *(pytest.param(name, marks=pytest.mark.slow) for name in FAMILIES[1:])]
)
def test_the_example_gives_the_ids_of_pytorch(tmp_path, name, draw_regions):
    pytest.importorskip("onnxscript", reason="needs the extra onnx")
    model = create(name, **(RULES if name == "xlan" else {}))
    report = export.export_captioner(model, tmp_path)
    assert 0 < report.max_difference < 1e-4
    example = runpy.run_path(str(EXAMPLE))
    *loaded, vocabulary = example["load"](tmp_path)
    assert tuple(vocabulary) == model.vocabulary.tokens
    for count in (1, 3, 6):
        regions = draw_regions((count,), dim=FEATURE_DIM, seed=count)
        features, boxes = regions.features[0].numpy(), regions.boxes[0].numpy()
        output = greedy(model, regions)
        assert example["greedy"](*loaded, features, boxes) == output.tokens[0, 0].tolist()
    np.savez(tmp_path / "image.npz", feat=features, boxes=boxes)
    blocked = "import sys, runpy; sys.modules.update(torch=None, legenda=None); sys.argv = sys.argv[1:]; "
    blocked += "runpy.run_path(sys.argv[0], run_name='__main__')"
    call = [sys.executable, "-c", blocked, EXAMPLE, tmp_path, tmp_path / "image.npz"]
    printed = subprocess.run(call, capture_output=True, text=True, check=True, timeout=60).stdout
    assert printed.strip() == model.vocabulary.decode(output.tokens[0, 0].tolist())


def test_the_command_reports_the_difference(tmp_path, run_command, monkeypatch):
    monkeypatch.setattr(export, "_trace", lambda part, *_: part)
    monkeypatch.setattr(
        export, "_write_torch", lambda part, path, inputs, _: path.touch() or ((lambda x: part(dict(x))), inputs)
    )
    create("transformer").save(tmp_path / "run")
    code, out, err = run_command(f"export {tmp_path / 'run'} --format torch --max-length 3")
    assert code == 0, err
    assert out.startswith(f"{tmp_path / 'run' / 'torch'}: decoder.pt2, encoder.pt2, export.json, vocabulary.json, ")
    assert out.endswith("differ from PyTorch by at most 0.0e+00\n")
    assert json.loads((tmp_path / "run" / "torch" / "export.json").read_text())["generation_config"]["max_length"] == 3
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(hub, "download_model", lambda _: tmp_path / "run")
    code, out, _ = run_command("export somebody/scenes --format torch --max-length 3")
    assert out.startswith("torch: decoder.pt2, encoder.pt2, ")
    assert not (tmp_path / "somebody").exists()
    code, _, err = run_command(f"export {tmp_path / 'run'} --format torch --max-length 0")
    assert (code, err.count("--max-length must be")) == (2, 1)


def test_a_model_of_another_precision_is_exported_in_float32(tmp_path, monkeypatch):
    traced = []
    monkeypatch.setattr(export, "_trace", lambda part, *examples: traced.append(examples) or part)
    monkeypatch.setattr(
        export, "_write_torch", lambda part, path, inputs, _: path.touch() or ((lambda x: part(dict(x))), inputs)
    )
    model = create("transformer").double()
    export.export_captioner(model, tmp_path / "out", format="torch", max_length=3)
    assert traced[0][0]["memory.states"].dtype == torch.float32
    assert next(model.parameters()).dtype == torch.float64


@pytest.mark.slow
def test_a_model_that_cannot_be_traced_is_refused_in_one_sentence(tmp_path, run_command):
    """AoANet of videos, whose LSTM packs frames by their number."""
    model = create("aoanet", recurrent=True)
    model.save(tmp_path / "run")
    code, _, err = run_command(f"export {tmp_path / 'run'} --format torch --max-length 3")
    assert (code, err.count("\n")) == (2, 1)
    assert "the encoder of aoanet" in err
    assert not (tmp_path / "run" / "torch").exists()


def test_missing_packages_are_named_with_a_line_that_installs_them(tmp_path, run_command, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    create("transformer").save(tmp_path / "run")
    code, _, err = run_command(f"export {tmp_path / 'run'}")
    assert code == 2
    assert err.endswith(f"onnxscript is missing; {install_line('onnx')}\n")
