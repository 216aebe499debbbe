"""A plugin registers parts of every kind, which every command then takes; runs name it and never run it."""

import json
import sys
import tomllib

import pytest

import legenda
from command_results import error_of
from legenda.cli.main import main
from legenda.data.scenes import draw_scene, make_scene
from legenda.training.checkpoint import read_progress

pytestmark = [pytest.mark.usefixtures("one_thread", "forget_plugins")]

FILE = '''
from __future__ import annotations

from typing import Literal

from pydantic import Field

import torch

import legenda
from legenda.data.captions import ScenesData
from legenda.models import CaptionerConfig
from legenda.config import Config
from legenda.models.transformer import TransformerConfig, TransformerDecoder
from legenda.recipes import Recipe
from legenda.tasks import Captioning
from legenda.tasks.base import SelfCriticalConfig
from legenda.training import Constant, TrainingConfig


@legenda.register_model("linear", summary="a model", paper="mine")
class LinearConfig(TransformerConfig):
    bonus: float = 0.25


@legenda.register_decoder("shallow")
class ShallowConfig(CaptionerConfig):
    num_heads: int = 2
    width: int = 8

    def build_decoder(self):
        sizes = dict(vocab_size=self.vocab_size, dim=self.dim, num_heads=self.num_heads, num_layers=1)
        return TransformerDecoder(TransformerConfig(**sizes, ff_dim=self.width, dropout=0.0))


class Sizes(Config):
    factor: int = 1


@legenda.register_dataset("few_scenes")
class FewScenes(ScenesData):
    kind: Literal["few_scenes"] = "few_scenes"
    sizes: Sizes = Field(default_factory=Sizes)


@legenda.register_task("my_captioning")
class MyCaptioning(Captioning):
    pass


@legenda.register_metric("words")
def count_words(captions, references):
    """Words of a caption."""
    return [len(caption.split()) for caption in captions]


@legenda.register_reward("short")
def short(images, tokens):
    return -(tokens != 0).sum(axis=-1).astype(float)


@legenda.register_reward("known")
class Known:
    def __init__(self, split, vocabulary):
        self.references, self.vocabulary = split.references, vocabulary

    def __call__(self, images, tokens):
        known = [[self.vocabulary.decode(row) in self.references[i] for row in rows] for i, rows in zip(images, tokens)]
        return torch.tensor(known).double().numpy()


schedule = Constant(learning_rate=1e-3)
stage = TrainingConfig(epochs=1, batch_size=6, captions_per_image=1, schedule=schedule, monitor="words")
rewards = SelfCriticalConfig(num_samples=2, max_length=6, rewards={"CIDEr-D": 1.0, "short": 0.1, "known": 1.0})
legenda.register_recipe(Recipe(
    name="mine.linear",
    summary="parts of my own",
    model="linear",
    model_overrides={"dim": 8, "num_heads": 2, "num_layers": 1, "ff_dim": 8, "bonus": 0.5},
    data=FewScenes(train=12, validation=3, test=3),
    stages=(stage, TrainingConfig(**{**vars(stage), "objective": "self_critical", "self_critical": rewards})),
    task="my_captioning",
))
'''


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(FILE)
    return path


def test_every_kind_from_training_to_report(file, tmp_path, forget_plugins, run_command):
    assert "parts of my own" in run_command(f"recipes --plugin {file}")[1]
    printed = tomllib.loads(run_command(f"recipes mine.linear --plugin {file}")[1])
    assert printed["fine_tuning"]["self_critical"]["rewards"]["short"] == 0.1
    first = tmp_path / "first"
    main(f"train mine.linear --plugin {file} --out {first} --stages first".split())
    assert "fine_tuning" not in json.loads((first / "config.json").read_text())
    out = tmp_path / "run"
    line = f"--plugin {file} --out {out} data.sizes.factor=2 model.decoder.name=shallow model.decoder.width=6"
    main(f"train mine.linear {line} fine_tuning.epochs=2".split())
    progress = read_progress(out)
    assert (progress.stage, progress.epoch, progress.step, progress.finished) == (1, 3, 6, True)
    config = json.loads((out / "config.json").read_text())
    assert config["data"] | {"seed": 0} == {
        **{"kind": "few_scenes", "train": 12, "validation": 3, "test": 3, "seed": 0},
        **{"sizes": {"factor": 2}, "families": ["near", "size", "bind"], "cache": None},
    }
    assert (config["model"]["bonus"], config["model"]["decoder"]["width"]) == (0.5, 6)

    forget_plugins()
    assert "linear" in error_of(run_command(f"evaluate {out}"))
    assert "mine" not in sys.modules
    with pytest.raises(legenda.CheckpointError, match="linear"):
        legenda.load(out)
    main(f"evaluate {out} --plugin {file}".split())
    evaluated = json.loads((out / "evaluation_val.json").read_text())
    assert evaluated["scores"]["words"] == sum(len(text.split()) for text in evaluated["captions"].values()) / 3
    main(f"report {out} --plugin={file} --out {tmp_path / 'report.html'}".split())
    assert "Words of a caption." in (tmp_path / "report.html").read_text()
    draw_scene(make_scene("fresh", 1)).save(tmp_path / "scene.png")
    code, printed, _ = run_command(f"caption {tmp_path / 'scene.png'} --model {out} --extractor scenes --plugin {file}")
    assert code == 0
    assert "scene.png" in printed


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("train scenes.ngsan model.attention=mean", "there is no attention 'mean'; choose from memory, multi_head, "),
        ("models --plugin", "missing value for --plugin; name a Python file"),
        ("models --plugin absent.py", "absent.py cannot be read (No such file or directory); name a Python file"),
        ("models --plugin a.py", "a.py fails while it is loaded (ZeroDivisionError: division by zero)"),
        ("models --plugin json.py", "json.py has the name of the module in"),
    ],
)
def test_a_mistake_is_one_sentence(line, message, monkeypatch, tmp_path, run_command):
    monkeypatch.chdir(tmp_path)
    for name in ("a.py", "json.py"):
        (tmp_path / name).write_text("1 / 0")
    assert message in error_of(run_command(line))


@pytest.mark.slow
def test_ray_gets_the_plugins(file, tmp_path, capsys):
    pytest.importorskip("ray", reason="needs the extra ray")
    out = tmp_path / "run"
    main(f"train mine.linear --plugin {file} --out {out} --stages first".split())
    draw_scene(make_scene("fresh", 1)).save(tmp_path / "scene.png")
    captions = f"caption {tmp_path / 'scene.png'} --model {out} --engine ray --workers 1 --out {tmp_path / 'captions'}"
    main(f"{captions} --plugin {file}".split())
    assert "0 of them failed" in capsys.readouterr().out
