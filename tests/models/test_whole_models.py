"""A model that the library hands out is a whole `nn.Module`, at the width that people train."""

import copy
import io
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import legenda
from legenda import Regions
from legenda.compute import RunOptions, has_bf16
from legenda.data.captions import ScenesData
from legenda.evaluation.runs import load_run
from legenda.export import export_captioner
from legenda.models import packing

DATA = ScenesData(train=40, validation=2, test=2)
WIDE = {"dim": 512, "num_heads": 8, "ff_dim": 1024, "word_dim": 512}


@pytest.fixture(autouse=True)
def only_large_layers_are_packed(monkeypatch):
    monkeypatch.setattr(packing, "MIN_NUMEL", 2**18)


@pytest.fixture(scope="module")
def wide(make_run, sized) -> Callable[[str], Path]:
    """The folder of a model of 512 channels with random weights, made once for each name."""
    made: dict[str, Path] = {}

    def make(name: str) -> Path:
        if name not in made:
            made[name] = make_run(name, DATA, options=sized(name, **WIDE))
        return made[name]

    return make


DOORS = {
    "open": lambda folder: legenda.open(folder).model,
    "open in bf16": lambda folder: legenda.open(folder, precision="bf16").model,
    "load": legenda.load,
    "load_run": lambda folder: load_run(folder, RunOptions(device="cpu")).model,
    "create_model": lambda folder: _created(legenda.load(folder)),
}
FAST = {("ngsan", "open"), ("ngsan", "create_model"), ("aoanet", "open")}
NAMES = ("ngsan", "aoanet", "xlan", "mdsan", "transformer", "nsan", "gsan", "xtransformer", "updown", "meshed")
WAYS = [
    pytest.param(name, door, marks=[] if (name, door) in FAST else pytest.mark.slow)
    for name in NAMES
    for door in DOORS
    if door != "open in bf16" or has_bf16()
]


def _created(like: legenda.models.Captioner) -> legenda.models.Captioner:
    model = legenda.create_model(like.name, **vars(like.config)).eval()
    model.load_state_dict(like.state_dict())
    model.vocabulary, model.generation_config = like.vocabulary, like.generation_config
    return model


@pytest.mark.filterwarnings("ignore:torch.ao.quantization is deprecated", "ignore:torch.quantize_per_tensor")
@pytest.mark.parametrize(("name", "door"), WAYS)
def test_every_model_that_is_handed_out_is_whole(wide, draw_regions, tmp_path, name, door):
    folder = wide(name)
    expected = legenda.load(folder)
    model = DOORS[door](folder)
    regions = draw_regions((3, 2), dim=model.config.feature_dim)
    tokens = torch.arange(6).view(2, 1, 3)
    assert packing.packed(model) is not model  # so large are its layers
    captions = model.caption(regions)
    if door == "open in bf16":
        model.inference_dtype = None
        captions = model.caption(regions)
    assert captions == expected.caption(regions)

    state = expected.state_dict()
    assert model.parameter_count == expected.parameter_count
    assert {key: tensor.tolist() for key, tensor in model.state_dict().items() if tensor.numel() < 1000} == {
        key: tensor.tolist() for key, tensor in state.items() if tensor.numel() < 1000
    }
    assert [*model.state_dict()] == [*state]
    model.load_state_dict(state)
    expected.load_state_dict(model.state_dict())
    torch.save(model.state_dict(), io.BytesIO())
    stream = io.BytesIO()
    torch.save(model, stream)
    stream.seek(0)
    with torch.no_grad():
        logits = model(regions, tokens)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), torch.load(stream, weights_only=False)):
        assert other.caption(regions) == captions
        with torch.no_grad():
            torch.testing.assert_close(other(regions, tokens), logits, rtol=0, atol=0)

    model(regions, tokens).square().sum().backward()
    missing = [key for key, parameter in model.named_parameters() if parameter.grad is None]
    assert missing == []
    torch.optim.SGD(model.parameters(), lr=1e-4).step()
    stepped = model.caption(regions)
    assert stepped == copy.deepcopy(model).caption(regions)
    model.load_state_dict(state)
    assert model.caption(regions) == captions

    quantized = torch.ao.quantization.quantize_dynamic(copy.deepcopy(model), {nn.Linear}, dtype=torch.qint8)
    assert any("quantized" in type(module).__module__ for module in quantized.modules())
    saved = legenda.load(model.save(tmp_path / "again"))
    assert saved.caption(regions) == captions
    half = copy.deepcopy(model).half()
    assert {tensor.dtype for tensor in half.parameters()} == {torch.float16}
    with torch.no_grad():
        assert half(Regions(regions.features.half(), regions.boxes, regions.mask), tokens).isfinite().all()
        for parameter in model.parameters():
            parameter.zero_()
        assert not model(regions, tokens).any()


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize("name", ["ngsan", "aoanet", "xlan", "mdsan"])
def test_a_model_that_was_opened_can_be_exported(wide, tmp_path, name):
    model = legenda.open(wide(name)).model
    model.caption(Regions(torch.randn(1, 3, model.config.feature_dim), torch.rand(1, 3, 4).sort(-1).values))
    report = export_captioner(model, tmp_path / "out", format="torch", max_length=3)
    assert report.max_difference < 1e-3


def test_tasks_other_than_captioning_are_handed_out_whole():
    options = {"vocab_size": 30, "answers": 9, "feature_dim": 8, "num_layers": 1}
    model = legenda.models.registry.build_model("mcan", options)
    view = packing.packed(model)
    assert view is not model
    assert [*view.state_dict()] == [*model.state_dict()]
    assert model.parameter_count == view.parameter_count > 2**18


@pytest.mark.slow
def test_a_pipeline_goes_to_worker_processes(wide):
    """Pickled, deep-copied, and used in a process that was spawned."""
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (60, 80, 3), dtype=np.uint8))
    pipeline = legenda.open(wide("ngsan"))
    expected = pipeline.caption(image)
    assert copy.deepcopy(pipeline).caption(image).tokens == expected.tokens
    assert pickle.loads(pickle.dumps(pipeline)).caption(image).tokens == expected.tokens
    photographs = pickle.loads(pickle.dumps(legenda.open("photo")))
    assert photographs.caption(image).text == legenda.open("photo").caption(image).text
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        assert pool.submit(_caption, pipeline, image).result(120) == expected.tokens


def _caption(pipeline: legenda.Pipeline, image: Image.Image) -> tuple[int, ...]:
    torch.set_num_threads(1)
    return pipeline.caption(image).tokens
