"""Devices and precisions by name, and that they reach models, features and extractors."""

import numpy as np
import pytest
import torch
from torch import nn

from command_results import error_of
from legenda import load
from legenda.compute import ComputeOptions, RunOptions, has_bf16
from legenda.data.captions import ScenesData
from legenda.data.scenes import draw_scene, make_scene
from legenda.errors import ConfigError
from legenda.evaluation.runs import load_captioner_run, load_run
from legenda.models import packing
from legenda.models.base import eval_mode, inference
from legenda.models.packing import PackedWeights
from legenda.pipeline import open as open_pipeline

DATA = ScenesData(train=40, validation=2)


@pytest.fixture
def devices(monkeypatch):
    """A machine with so many CUDA devices, and MPS or not."""

    def have(count: int, *, mps: bool = False) -> None:
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)

    return have


@pytest.mark.parametrize(
    ("name", "count", "mps", "expected"),
    [
        ("auto", 0, False, "cpu"),
        ("auto", 0, True, "mps"),
        ("auto", 2, True, "cuda"),
        ("cpu", 2, True, "cpu"),
        ("cuda", 1, False, "cuda"),
        ("cuda:1", 2, False, "cuda:1"),
        ("mps", 0, True, "mps"),
    ],
)
def test_devices_by_name(devices, name, count, mps, expected):
    devices(count, mps=mps)
    assert str(ComputeOptions(device=name).resolve()) == expected


@pytest.mark.parametrize("name", ["cuda:128", "cuda:256", "cuda:01", "cuda:1\u0661", "cuda:", "cpu:0"])
def test_a_number_that_no_device_has_is_refused(name):
    """PyTorch holds the number in 8 bits, so that cuda:256 would be cuda:0."""
    with pytest.raises(ConfigError, match="device must be"):
        ComputeOptions(device=name)


COMMANDS = [
    "caption a.png --model nowhere",
    "evaluate nowhere",
    "report nowhere",
    "serve nowhere",
    "extract a.png --extractor scenes",
    "train scenes.ngsan",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_refuses_an_unknown_device_and_precision(run_command, command):
    assert "device must be auto, cpu, cuda, cuda:N or mps, not 'gpu'" in error_of(
        run_command(f"{command} --device gpu")
    )
    code, _, err = run_command(f"{command} --precision fp8")
    assert (code, "fp8" in err) == (2, True)


def test_bf16_on_the_cpu_needs_onednn(monkeypatch):
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="bf16"):
        ComputeOptions(device="cpu", precision="bf16").resolve_for_models()
    assert ComputeOptions(device="cpu").resolve_for_models().type == "cpu"


@pytest.mark.parametrize("command", ["caption a.png --model", "evaluate", "report"])
def test_fp16_needs_a_gpu(run_command, make_run, tmp_path, command):
    image = tmp_path / "a.png"
    draw_scene(make_scene("fresh", 0)).save(image)
    line = f"{command} {make_run('ngsan', DATA)} --device cpu --precision fp16".replace("a.png", str(image))
    assert "fp16" in error_of(run_command(line))


def test_the_device_reaches_weights_and_features(make_run, monkeypatch):
    """On the meta device, as tests have no other: it holds no values, so only extraction can run."""
    monkeypatch.setattr(ComputeOptions, "resolve", lambda _: torch.device("meta"))
    run = make_run("ngsan", DATA)
    compute = RunOptions(device="cuda")
    for loaded in (load_run(run, compute), load_captioner_run(run, compute)):
        assert {parameter.device.type for parameter in loaded.model.parameters()} == {"meta"}
        assert loaded.model.device.type == "meta"
    regions = open_pipeline(run, device="cuda").extract(np.asarray(draw_scene(make_scene("fresh", 0))))
    assert {tensor.device.type for tensor in (regions.features, regions.boxes, regions.mask_or_ones)} == {"meta"}


@pytest.mark.parametrize("name", ["ngsan", "xlan"])
def test_models_on_cpus_compute_with_packed_weights(make_run, draw_regions, name):
    """Float32 and bf16 within their rounding, which is how it shows that bf16 is what is computed."""
    run = make_run(name, DATA)
    plain = load(run)
    regions, tokens = draw_regions((5, 3), dim=plain.config.feature_dim), torch.arange(6).view(2, 1, 3)
    with eval_mode(plain):
        expected = plain(regions, tokens)
        captions = plain.caption(regions)
    for precision, tolerance in (("float32", 1e-5), *([("bf16", 0.05)] if has_bf16() else [])):
        model = load_captioner_run(run, RunOptions(device="cpu", precision=precision)).model
        with inference(model, PackedWeights(min_numel=1)) as predictor:
            assert predictor is not model
            error = (predictor(regions, tokens) - expected).abs().max().item()
        assert error < tolerance
        assert (error > 1e-5) == (precision != "float32")
        assert precision != "float32" or model.caption(regions) == captions


def test_weights_are_packed_once_for_many_searches_and_not_for_one(make_run, draw_regions, monkeypatch):
    """Packing takes longer than `model.caption` gains by it."""
    pipeline = open_pipeline(make_run("ngsan", DATA), device="cpu")
    images, made = [np.asarray(draw_scene(make_scene("fresh", seed))) for seed in range(2)], []
    original = packing._Product
    monkeypatch.setattr(packing, "_Product", lambda *args: made.append(args) or original(*args))
    load(make_run("ngsan", DATA)).caption(draw_regions((5, 3), dim=pipeline.model.config.feature_dim))
    assert not made
    pipeline.caption(images)
    count = len(made)
    assert count > 0
    pipeline.caption(images[0])
    assert len(made) == count


def test_evaluation_mode_leaves_an_outer_autocast_on():
    layer = nn.Linear(2, 2)
    with torch.autocast("cpu", dtype=torch.bfloat16), eval_mode(layer):
        assert layer(torch.zeros(1, 2)).dtype == torch.bfloat16
