"""`legenda train`: train a recipe into a run folder."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

import tyro

from legenda.cli.options import parse
from legenda.compute import Precision
from legenda.config import Config, Count, NonNegativeCount, PositiveInt
from legenda.errors import ConfigError, did_you_mean
from legenda.registry import plugin_options
from legenda.run_folder import CONFIG
from legenda.terminal import escape_controls, shorten

if TYPE_CHECKING:
    from legenda.recipes import Recipe


class TrainOptions(Config):
    """Train a recipe into a run folder; called again, it resumes.

    A recipe has stages: training, and perhaps fine_tuning, which starts from the best model of the first. Its fields
    are changed by KEY=VALUE: legenda train scenes.ngsan training.epochs=3 model.num_layers=3 data.seed=1. Values are
    TOML; bare words are strings. legenda recipes lists the recipes, and legenda recipes NAME prints one with the
    description of every field.
    """

    examples: ClassVar[tuple[str, ...]] = (
        "scenes.ngsan",
        "scenes.ngsan training.epochs=3 model.num_layers=3 --out runs/small",
        "photo data.annotations=mine/table.csv --init-from photo --out runs/mine",
    )
    usual: ClassVar[tuple[str, ...]] = ("out", "config", "init_from", "seeds", "stages", "device")

    arguments: tyro.conf.Positional[tuple[str, ...]] = ()
    """The name of a recipe (unless --config gives one), then changes such as training.epochs=3."""
    out: Path | None = None
    """The run folder, by default runs/RECIPE."""
    config: Path | None = None
    """A recipe in TOML, as legenda recipes NAME prints it, or the config.json of a run, instead of the name of one."""
    init_from: str | None = None
    """A trained model (a run folder or a name) whose vocabulary and sizes replace those of the first of two stages."""
    seeds: Count = 1
    """Runs to train, in OUT/seed0, OUT/seed1 and so on."""
    stages: Literal["all", "first"] = "all"
    """first stops after the first of two stages."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:N or mps; auto is CUDA if there is such a device, else MPS, else the CPU."""
    precision: Precision | None = None
    """float32, or bf16 or fp16, in every stage; by default that of the recipe."""
    devices: PositiveInt = 1
    """Devices that share every step."""
    nodes: PositiveInt = 1
    """Machines that share every step."""
    strategy: Literal["ddp", "fsdp"] = "ddp"
    """Each of several devices has the whole model, or a shard of it."""
    allow_urls: bool = False
    """Fetch the images of hub data whose column holds addresses of http and https."""
    profile_steps: NonNegativeCount = 0
    """Steps to trace with PyTorch's profiler, into OUT/trace.json, which https://ui.perfetto.dev opens."""

    def recipe(self) -> tuple[Recipe, dict[str, object]]:
        """Return the recipe, and the changes of the command line as fields."""
        from legenda.papers import get_recipe
        from legenda.recipes import parse_changes, read_recipe

        changes = list(self.arguments)
        if self.config is not None:
            if self.config.name == CONFIG and self.out is None:
                raise ConfigError(f"{self.config} is of a run; name the folder of the new one with --out")
            return read_recipe(self.config), parse_changes(changes)
        if not changes or "=" in changes[0]:
            raise ConfigError("the recipe comes first, as in legenda train scenes.ngsan; legenda recipes lists them")
        return get_recipe(changes[0]), parse_changes(changes[1:])


def run(arguments: Sequence[str]) -> None:
    """Train, and print the validation score and the next command."""
    names = TrainOptions.model_fields.keys() - {"arguments"} | {"help", "help_all", "plugin"}
    known = {f"--{name.replace('_', '-')}" for name in names}
    for argument in arguments:
        if argument.startswith("--") and (name := argument.split("=")[0].replace("_", "-")) not in known:
            hint = did_you_mean(name, known) if "." not in name else "write KEY=VALUE without dashes"
            raise ConfigError(
                f"there is no option {name}; {hint} (fields of the recipe are changed as in training.epochs=3)"
            )
    if not {"-h", "--help", "--help-all"} & {*arguments}:
        from legenda.recipes import changes_first  # late: the help takes no PyTorch

        arguments = changes_first(arguments)
    options = parse(TrainOptions, arguments, "train")
    recipe, changes = options.recipe()
    name = str(changes.get("name", recipe.name))
    out = options.out or Path("runs") / name
    if options.seeds == 1:
        return _train(options, recipe, changes, out)
    refuse_seeds(changes)
    if (out / CONFIG).exists():
        raise ConfigError(f"{out} holds a run; name another folder for those of the seeds with --out")
    folders = [out / f"seed{seed}" for seed in range(options.seeds)]
    for seed, folder in enumerate(folders):
        _train(options, recipe, changes, folder, seed)
    print(f"as an ensemble: legenda evaluate {' '.join(map(str, folders))}")


def refuse_seeds(changes: Mapping[str, object]) -> None:
    """Raise ConfigError for changes of the seeds of stages, which --seeds sets."""
    for part, fields in changes.items():
        if part != "data" and isinstance(fields, Mapping) and "seed" in fields:
            raise ConfigError(f"--seeds sets the seed of every run, from 0; leave out {part}.seed, or --seeds")


def _train(
    options: TrainOptions, recipe: Recipe, changes: dict[str, object], out: Path, seed: int | None = None
) -> None:
    from legenda.experiment import train

    settings = options.model_dump(exclude={"arguments", "out", "config", "seeds"})
    result = train(
        recipe,
        changes,
        out=out,
        seed=seed,
        progress=lambda line: print(shorten(escape_controls(line)), file=sys.stderr, flush=True),
        **settings,
    )
    if result.is_global_zero:
        score = f"{result.monitor} {result.best:.3f} after epoch {result.best_epoch}"
        following = shlex.join(["legenda", "evaluate", str(out), *plugin_options()])
        print(f"{out}: {score}, {result.seconds:.0f} s of training\nnext: {following}")
