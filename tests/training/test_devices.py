"""Several processes train like one: same weights, each image validated once, files written once."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import safetensors.torch
import torch
from small_runs import TRAINING, open_scenes, run

from legenda.errors import ConfigError
from legenda.tasks.base import SelfCriticalConfig
from legenda.training import TrainingConfig
from legenda.training.checkpoint import TENSORBOARD_FOLDER, read_history
from legenda.training.distributed import check_gradients, describe_idle_devices

pytestmark = pytest.mark.usefixtures("one_thread")

# 21 scenes in steps of 5: the last step has one image, and nothing is left for the second process.
DATA = open_scenes(21)
SETTINGS = TRAINING.replace(epochs=2, batch_size=5, checkpoint_every=0)
DRAWN = TrainingConfig(
    epochs=1, batch_size=5, objective="self_critical", self_critical=SelfCriticalConfig(num_samples=2, max_length=8)
)

SCRIPT = """
import logging

logging.basicConfig(level=logging.INFO, format="%(message)s")
import os, sys
import torch
torch.set_num_threads(1)
sys.path.insert(0, {tests!r})
import safetensors.torch
from legenda.training import launch
from legenda.training.distributed import full_tensors
from test_devices import DATA, DRAWN, SETTINGS
from small_runs import Path, run

original, step, steps = launch.TrainingLoop.fit, launch.TrainingLoop._learning_rate, 0

def noted(self, title):
    progress = original(self, title)
    weights = {{name: tensor.clone() for name, tensor in full_tensors(self.model.state_dict()).items()}}
    rank = self.fabric.global_rank
    safetensors.torch.save_file(weights, {folder!r} + f"/rank{{rank}}.safetensors")
    return progress

def killed(self, *behind):
    global steps
    steps += 1
    if steps == {kill}:
        os._exit(9)
    return step(self, *behind)

launch.TrainingLoop.fit, launch.TrainingLoop._learning_rate = noted, killed
run(Path({folder!r}) / "run", {settings}, DATA, devices=2, dropout=0.0, fine_tuning={second}, strategy={strategy!r})
"""


def on_two(
    folder: Path, settings: str = "SETTINGS", second: str = "None", strategy: str = "ddp", kill: int | None = None
) -> str:
    """Train in two processes and return their standard error. kill: the step before which both are killed."""
    script = folder / "script.py"
    tests = str(Path(__file__).parent)
    names = {"tests": tests, "folder": str(folder), "settings": settings, "second": second, "strategy": strategy}
    script.write_text(SCRIPT.format(**names, kill=kill))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    ended = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=300, env=environment
    )
    assert (ended.returncode == 0) == (kill is None), ended.stderr
    return ended.stderr


def test_parameters_without_gradients_are_named():
    model = torch.nn.ModuleDict({"used": torch.nn.Linear(2, 2), "unused": torch.nn.Linear(2, 2)})
    model["fixed"] = torch.nn.Linear(2, 2).requires_grad_(False)
    model["used"](torch.ones(2)).sum().backward()
    with pytest.raises(ConfigError, match=r"unused\.weight, unused\.bias,"):
        check_gradients(model)
    model["unused"](torch.ones(2)).sum().backward()
    check_gradients(model)


WIDE = ["scenes.gsan", "model.attention=mine", "model.dim=512", "model.num_heads=8", "model.ff_dim=1024"]
WIDE += ["model.num_layers=1", "model.dropout=0.0", "data.train=12", "data.validation=3", "data.test=18"]
WIDE += ["training.epochs=1", "training.batch_size=4", "training.eval_beam_size=1", "--device", "cpu"]
PLUGIN = """
import legenda
from torch import nn
from legenda.attention.config import create_multi_head

@legenda.register_attention("mine", honors=("geometry",))
def create(*options, **how):
    attention = create_multi_head(*options, **how)
    if {unused}:
        attention.spare = nn.Linear(3, 3)
    return attention
"""


def train_wide(folder: Path, *more: str, unused: bool = False) -> subprocess.CompletedProcess[str]:
    """Train with an attention of a user's own at 512 channels; unused: it has parameters that nothing reads."""
    (folder / "mine.py").write_text(PLUGIN.format(unused=unused))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", "legenda", "train", *WIDE, "--plugin", str(folder / "mine.py"), *more]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, env=environment)


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="compares processes on the CPU")
def test_an_attention_of_a_users_own_trains_on_two_devices_as_on_one(tmp_path):
    losses = []
    for count in (1, 2):
        ended = train_wide(tmp_path, "--devices", str(count), "--out", str(tmp_path / f"run{count}"))
        assert ended.returncode == 0, ended.stderr
        losses.append([record["loss"] for record in read_history(tmp_path / f"run{count}") if "loss" in record])
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="compares processes on the CPU")
def test_an_attention_with_unused_parameters_is_refused_on_two_devices(tmp_path):
    ended = train_wide(tmp_path, "--devices", "2", "--out", str(tmp_path / "run"), unused=True)
    assert ended.returncode == 2
    assert "encoder.layers.0.attention.spare.weight" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="compares processes on the CPU")
def test_a_killed_sharded_run_is_resumed_exactly(tmp_path, sharded_run):
    """Killed in the second epoch, after the state at the end of the first."""
    on_two(tmp_path, strategy="fsdp", kill=8)
    assert not (tmp_path / "rank0.safetensors").exists()
    on_two(tmp_path, strategy="fsdp")
    for name, tensor in safetensors.torch.load_file(tmp_path / "rank0.safetensors").items():
        assert torch.equal(tensor, safetensors.torch.load_file(sharded_run[0] / "rank0.safetensors")[name]), name


@pytest.fixture(scope="module")
def sharded_run(tmp_path_factory) -> tuple[Path, str]:
    """The folder of a run with sharded weights, never interrupted, and its standard error."""
    folder = tmp_path_factory.mktemp("shares")
    return folder, on_two(folder, strategy="fsdp")


@pytest.mark.skipif(torch.cuda.is_available(), reason="compares processes on the CPU")
@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_two_processes_train_as_one(tmp_path, request, strategy):
    if strategy == "fsdp":
        together, stderr = request.getfixturevalue("sharded_run")
    else:
        together, stderr = tmp_path, on_two(tmp_path)
    first, second = (safetensors.torch.load_file(together / f"rank{rank}.safetensors") for rank in (0, 1))
    run(tmp_path / "alone", SETTINGS, DATA, dropout=0.0)
    alone = safetensors.torch.load_file(tmp_path / "alone" / "training_state.safetensors")
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name]), name
        # No attention depends on the bias of its keys, nor a normalized one on that of its queries: their gradients are
        # rounding, which Adam makes large.
        if not name.endswith((".key.bias", ".query.bias")):
            torch.testing.assert_close(tensor, alone[f"model.{name}"], atol=2e-5, rtol=1e-4)
    one, other = (
        [record["validation"] for record in read_history(folder) if "validation" in record]
        for folder in (together / "run", tmp_path / "alone")
    )
    assert len(one) == len(other) == 2
    assert one[-1] == pytest.approx(other[-1], abs=0.02)
    losses = [
        [record["loss"] for record in read_history(folder) if "loss" in record]
        for folder in (together / "run", tmp_path / "alone")
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    assert stderr.count("epoch 2 validation") == 1
    names = {"config.json", "metrics.jsonl", "model.safetensors", "training_state.safetensors"}
    assert {path.name for path in (together / "run").iterdir()} == {*names, "vocabulary.txt", TENSORBOARD_FOLDER}


@pytest.mark.skipif(torch.cuda.is_available(), reason="compares processes on the CPU")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("strategy", "second"), [("ddp", "DRAWN"), ("fsdp", "DRAWN"), ("ddp", "DRAWN.replace(precision='bf16')")]
)
def test_two_processes_stay_together_in_both_stages(tmp_path, strategy, second):
    """Each process samples its own captions; the weights stay the same, also in another precision."""
    on_two(tmp_path, second=second, strategy=strategy)
    first, second = (safetensors.torch.load_file(tmp_path / f"rank{rank}.safetensors") for rank in (0, 1))
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name]), name
    state = safetensors.torch.load_file(tmp_path / "run" / "training_state.safetensors")
    assert not torch.equal(state["random.0.cpu"], state["random.1.cpu"])


@pytest.mark.parametrize(
    ("batch_size", "accumulation", "devices", "words"),
    [
        (10, 1, 1, None),
        (10, 4, 1, None),
        (16, 2, 8, None),
        (20, 2, 8, None),
        (3, 1, 8, "batch_size 3 is the total over 8 devices, so 5 of 8 shares of each step are empty"),
        (10, 4, 8, "over 8 devices in 2 accumulation steps, so 6 of 16 shares of each step are empty"),
    ],
)
def test_idle_devices_are_named(batch_size, accumulation, devices, words):
    config = TRAINING.replace(batch_size=batch_size, gradient_accumulation_steps=accumulation)
    warning = describe_idle_devices(config, devices)
    assert warning is None if words is None else words in warning
