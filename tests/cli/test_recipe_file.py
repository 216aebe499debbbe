"""A file of a user's own registers a model, an attention, a kind of data and a task, which every command then takes."""

import json

import pytest

import legenda
from legenda.attention import ATTENTIONS
from legenda.cli.main import main
from legenda.datasets.registry import DATASETS
from legenda.datasets.scenes import draw_scene, make_scene
from legenda.models.model_table import MODELS
from legenda.tasks.registry import TASKS

pytestmark = pytest.mark.usefixtures("one_thread")

FILE = '''
from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from legenda.attention import ATTENTIONS, AttentionOutput
from legenda.datasets.captions import ScenesData
from legenda.datasets.registry import DATASETS
from legenda.models import register_model
from legenda.models.encoder import Encoder
from legenda.models.transformer.config import TransformerConfig
from legenda.recipes import Recipe
from legenda.regions import Memory
from legenda.tasks.captioning import Captioning
from legenda.tasks.registry import TASKS
from legenda.training import Constant, TrainingConfig


class MeanAttention(nn.Module):
    """Every query gets the mean of all values."""

    def __init__(self, dim):
        super().__init__()
        self.value = nn.Linear(dim, dim)

    def forward(self, query, key, value, mask=None, geometry=None):
        weights = mask.to(value.dtype)[:, None, :] / mask.sum(dim=1)[:, None, None]
        return AttentionOutput((weights @ self.value(value)).expand_as(query), None)


@ATTENTIONS.register("mean")
def mean_attention(options, dim, num_heads, *, dropout, inner_dim, output, bias):
    return MeanAttention(dim)


class LinearEncoder(Encoder):
    def __init__(self, feature_dim, dim, bonus):
        super().__init__()
        self.linear = nn.Linear(feature_dim, dim)
        self.bonus = nn.Parameter(torch.full((dim,), bonus))

    def forward(self, regions):
        states = self.linear(regions.features) + self.bonus
        mask = regions.mask_or_ones
        return Memory(states, mask, states.mean(dim=1))


@register_model("linear", summary="a linear encoder", paper="mine")
@dataclass(frozen=True, kw_only=True)
class LinearConfig(TransformerConfig):
    bonus: float = 0.25

    def build_encoder(self):
        return LinearEncoder(self.feature_dim, self.dim, self.bonus)


@DATASETS.register("few_scenes")
@dataclass(frozen=True, kw_only=True)
class FewScenes(ScenesData):
    factor: int = 1


@TASKS.register("my_captioning")
class MyCaptioning(Captioning):
    name = "my_captioning"


mine = Recipe(
    name="mine.linear",
    summary="a model, data and a task of my own",
    model="linear",
    model_overrides={"dim": 8, "num_heads": 2, "num_layers": 1, "ff_dim": 8, "bonus": 0.5},
    data=FewScenes(train=12, validation=3, test=3),
    stages=(TrainingConfig(epochs=1, batch_size=6, schedule=Constant(learning_rate=1e-3)),),
    task="my_captioning",
)
'''
SMALL = "--model.dim 8 --model.num-heads 2 --model.num-layers 1 --model.ff-dim 8"
FEW = "--data.train 12 --data.validation 3 --data.test 3 --training.epochs 1 --training.batch-size 6"


@pytest.fixture
def file(tmp_path, monkeypatch):
    _forget(monkeypatch)
    path = tmp_path / "mine.py"
    path.write_text(FILE)
    return path


def _forget(monkeypatch):
    for registry in (ATTENTIONS, DATASETS, MODELS, TASKS):
        own = {name: part for name, part in registry._entries.items() if name in registry._own}
        monkeypatch.setattr(registry, "_entries", own)


def test_a_model_with_its_data_and_task(file, tmp_path, monkeypatch, capsys):
    out = tmp_path / "run"
    main(f"train mine.linear --recipe-file {file} --out {out} --data.factor 2".split())
    config = json.loads((out / "config.json").read_text())
    assert (config["model"]["name"], config["task"], config["data"]["kind"]) == (
        "linear",
        "my_captioning",
        "few_scenes",
    )
    assert (config["model"]["options"]["bonus"], config["data"]["factor"]) == (0.5, 2)
    assert "linear" in legenda.list_models()

    _forget(monkeypatch)  # as in another process
    with pytest.raises(SystemExit):
        main(f"evaluate {out}".split())
    assert "there is no model 'linear'" in capsys.readouterr().err
    main(f"evaluate {out} --recipe-file {file}".split())
    evaluated = json.loads((out / "evaluation_val.json").read_text())
    assert len(evaluated["captions"]) == 3
    assert evaluated["scores"]["CIDEr-D"] is not None
    main(f"report {out} --recipe-file={file} --out {tmp_path / 'report.html'}".split())
    assert "linear" in (tmp_path / "report.html").read_text()
    draw_scene(make_scene("fresh", 1)).save(tmp_path / "scene.png")
    capsys.readouterr()
    main(f"caption {tmp_path / 'scene.png'} --model {out} --extractor scenes --recipe-file {file}".split())
    assert "scene.png" in capsys.readouterr().out


def test_an_attention_in_a_model_of_the_library(file, tmp_path, monkeypatch):
    out = tmp_path / "run"
    main(
        f"train scenes.ngsan --recipe-file {file} --out {out} --model.attention mean --model.norm none "
        f"--model.geometry none {SMALL} {FEW}".split()
    )
    assert type(legenda.load(out).encoder.layers[0].attention).__name__ == "MeanAttention"
    _forget(monkeypatch)
    main(f"evaluate {out} --recipe-file {file} --split test".split())
    assert len(json.loads((out / "evaluation_test.json").read_text())["captions"]) == 3


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("train scenes.ngsan --model.attention mean", "there is no attention 'mean'; choose from multi_head, x_linear"),
        ("train scenes.ngsan --model.norm in_afine", "there is no norm 'in_afine'; did you mean in_affine"),
        ("models --recipe-file", "missing value for --recipe-file; name a Python file"),
        ("models --recipe-file absent.py", "absent.py cannot be read"),
    ],
)
def test_a_mistake_is_one_sentence(line, message, monkeypatch, tmp_path, capsys):
    _forget(monkeypatch)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        main(line.split())
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
