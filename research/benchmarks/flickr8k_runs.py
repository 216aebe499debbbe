"""Train the models of research/results/flickr8k.md, each for the same processor time, and evaluate them.

    python research/benchmarks/flickr8k_runs.py WORK --pilot 20
    python research/benchmarks/flickr8k_runs.py WORK --seeds 100 101 102

WORK holds the files of flickr8k_features.py. The first command prints the processor seconds of a training step of each
model: the median of so many, which the models take in turn on the same batches, with initial weights. The second makes
WORK/runs/MODEL/seedN, all models with one seed before the next, evaluates them with beam 3 on `test`, and writes the
processor seconds of the training steps and of both commands to seconds.json. Called again, it makes what is missing.
"""

import argparse
import shutil
import statistics
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar
from unittest.mock import patch

import numpy as np
import torch
from lightning_fabric import Fabric

from legenda.cli.main import main as legenda
from legenda.io import write_json
from legenda.papers import get_recipe
from legenda.tasks.captioning import Captioning
from legenda.training.distributed import stage_precision
from legenda.training.stage import Stage

STEPS = {
    "transformer": 582,
    "nsan": 572,
    "gsan": 498,
    "ngsan": 490,
    "aoanet": 584,
    "xlan": 344,
    "xtransformer": 146,
    "mdsan": 494,
}
"""Training steps of each model, an even number: 110 s divided by the seconds of a step in the pilot."""
PRECISION = "float32"


class TimedStage(Stage):
    """A stage that keeps the processor seconds of its steps."""

    seconds: ClassVar[list[float]] = []

    def step(self, *arguments: Any) -> dict[str, float]:
        """Update the weights once."""
        started = time.process_time()
        metrics = super().step(*arguments)
        self.seconds.append(time.process_time() - started)
        return metrics


def main() -> None:
    """Run what the options name."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("--pilot", type=int, help="measured steps of each model")
    parser.add_argument("--precision", default=PRECISION, help="of the pilot, as in a recipe")
    parser.add_argument("--seeds", type=int, nargs="+", default=[])
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.pilot:
        print_pilot(options.work, options.pilot, options.precision)
    for seed in options.seeds:
        for model in STEPS:
            run(model, seed, options.work)


def data_of(work: Path) -> dict[str, str]:
    """Return the files of all runs by the names of their options."""
    return {"annotations": str(work / "flickr8k.json"), "features": str(work / "flickr8k.safetensors")}


def print_pilot(work: Path, number: int, precision: str) -> None:
    """Print the processor seconds of a step of each model; the first two steps are not measured."""
    recipes = {model: get_recipe(f"flickr8k.{model}").override({"data": data_of(work)}) for model in STEPS}
    task = Captioning(recipes["transformer"].data.open(print))
    stages, seconds = {}, {model: [] for model in STEPS}
    with TemporaryDirectory() as folder:
        for model, recipe in recipes.items():
            fabric = Fabric(accelerator="cpu", plugins=stage_precision("cpu"))
            created = task.create(recipe.model, recipe.model_overrides, None)
            config = recipe.stages[0].replace(precision=precision)
            stages[model] = TimedStage(fabric, task, created, config, Path(folder))
        for step in range(number + 2):
            batch = np.random.default_rng(step).choice(len(task.train), config.batch_size, replace=False)
            for model, stage in stages.items():
                stage.step(batch, torch.Generator().manual_seed(step), 0.0, 1, step, None)
                seconds[model].append(TimedStage.seconds.pop())
        for model, stage in stages.items():
            stage.close()
            parameters = sum(weights.numel() for weights in stage.model.parameters())
            print(f"{model:<12}  {statistics.median(seconds[model][2:]):.4f} s  {parameters:,} parameters")


def run(model: str, seed: int, work: Path) -> None:
    """Train and evaluate a model, unless that is done; one that was interrupted is trained again, for its seconds."""
    folder, steps, seconds = work / "runs" / model / f"seed{seed}", STEPS[model], {}
    if (folder / "seconds.json").exists():
        return
    shutil.rmtree(folder, ignore_errors=True)
    options = {f"data.{name}": file for name, file in data_of(work).items()} | {
        "training.seed": seed,
        "training.precision": PRECISION,
        "training.steps_per_epoch": steps // 2,
        "training.schedule.total_steps": steps,
        "training.schedule.warmup_steps": steps // 10,
    }
    changes = [f"{name}={value}" for name, value in options.items()]
    commands = {
        "train": ["train", f"flickr8k.{model}", "--stages", "first", "--out", str(folder), *changes],
        "evaluate": ["evaluate", str(folder), "--split", "test"],
    }
    TimedStage.seconds.clear()
    with patch("legenda.training.loop.Stage", TimedStage):
        for name, command in commands.items():
            started = time.process_time()
            legenda(command)
            seconds[name] = time.process_time() - started
    write_json(folder / "seconds.json", {"steps": sum(TimedStage.seconds), **seconds})


if __name__ == "__main__":
    main()
