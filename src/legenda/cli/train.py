"""`legenda train`: a recipe becomes a run folder."""

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tyro

from legenda.cli.options import parse
from legenda.errors import UserError, nearest

if TYPE_CHECKING:
    from legenda.recipes import Recipe
    from legenda.tasks import Reward

_USAGE = """usage: legenda train RECIPE [--out RUN] [--start RUN] [--seeds N] [--devices N] [--nodes N]
                     [--strategy ddp|fsdp] [--stages all|first] [--recipe-file FILE] [--model.FIELD VALUE]
                     [--data.FIELD VALUE] [--training.FIELD VALUE] [--fine-tuning.FIELD VALUE]

Trains a recipe into a run folder (runs/RECIPE unless --out says otherwise); called again, it goes on where it was
stopped. A recipe may have two stages: training, and fine-tuning, which begins with the best model of the first.

--start RUN begins with the model of a trained run, whose vocabulary and options it keeps, in place of the recipe's
first stage where it has two: legenda train flickr8k.ngsan --start runs/x --out runs/y fine-tunes x.
--stages first ends after the first of two, so that a second begun with --start leaves its model as it is.
--model.decoder.name transformer gives the model the decoder of another, whose options are --model.decoder.FIELD VALUE.
--training.schedule and --training.objective take names: step_decay, table, noam, plateau, constant, cosine,
inverse_sqrt; and cross_entropy, self_critical.
--seeds 3 trains three runs, RUN/seed0 to RUN/seed2. --devices and --nodes share every step out among processes, each
with the whole model, or with a share of it (--strategy fsdp); with torchrun, each of its processes calls this command.
--recipe-file FILE reads recipes, and rewards, of your own from a Python file.

legenda recipes lists the recipes; legenda train RECIPE --help lists every field that can be set."""


@dataclass(frozen=True)
class Chosen:
    """What the command line makes of a recipe."""

    recipe: "Recipe"
    out: Path
    start: Path | None
    seeds: int
    devices: int
    nodes: int
    strategy: Literal["ddp", "fsdp"] = "ddp"
    rewards: "Mapping[str, Reward] | None" = None


def run(arguments: Sequence[str]) -> None:
    """Trains, and says where the model is and what to do with it."""
    if arguments and arguments[0] in ("-h", "--help"):
        print(_USAGE)
        return
    if not arguments or arguments[0].startswith("-"):
        raise UserError("the recipe comes first, as in legenda train scenes.ngsan; legenda recipes lists them")
    from legenda.recipes import get_recipe, read_recipes

    file = _given(arguments, "--recipe-file")
    own = None if file is None else read_recipes(file)
    chosen = configured(get_recipe(arguments[0], own), arguments[1:])
    if own is not None:
        chosen = dataclasses.replace(chosen, rewards=own.rewards)
    if chosen.seeds == 1:
        _train(chosen, chosen.recipe, chosen.out)
        return
    folders = []
    for seed in range(chosen.seeds):
        folders.append(chosen.out / f"seed{seed}")
        _train(chosen, _seeded(chosen.recipe, seed), folders[-1])
    print(f"all together: legenda evaluate {' '.join(map(str, folders))}")


def _train(chosen: Chosen, recipe: "Recipe", out: Path) -> None:
    from legenda.evaluation.runs import describe_data
    from legenda.training import check_folder, train

    check_folder(out)
    task = recipe.task(recipe.data.open(lambda text: print(text, file=sys.stderr, flush=True)))
    trained = train(
        recipe.model,
        recipe.options,
        task,
        recipe.training,
        out,
        sections={"recipe": recipe.name, "data": describe_data(recipe.data)},
        fine_tuning=recipe.fine_tuning,
        init_from=chosen.start,
        rewards=chosen.rewards,
        devices=chosen.devices,
        nodes=chosen.nodes,
        strategy=chosen.strategy,
    )
    if not trained.is_global_zero:
        return
    last = recipe.fine_tuning or recipe.training
    print(
        f"{out}: {last.monitor} {trained.best:.3f} after epoch {trained.best_epoch}, "
        f"{trained.seconds:.0f} s of training\nnext: legenda evaluate {out}"
    )


def _seeded(recipe: "Recipe", seed: int) -> "Recipe":
    second = recipe.fine_tuning
    return dataclasses.replace(
        recipe,
        training=dataclasses.replace(recipe.training, seed=seed),
        fine_tuning=None if second is None else dataclasses.replace(second, seed=seed),
    )


def configured(recipe: "Recipe", arguments: Sequence[str]) -> Chosen:
    """The recipe with what the command line changes, and the other options; UserError for a wrong option."""
    from legenda.cli._model_options import ModelOptions

    start = _given(arguments, "--start")
    if start is not None:
        recipe = _started(recipe, Path(start))
    recipe, arguments = _scheduled(recipe, arguments)
    model_options = ModelOptions.of(recipe, _given(arguments, "--model.decoder.name"))
    namespace: dict[str, Any] = {"__doc__": f"Trains {recipe.name} ({recipe.summary}).", "__module__": __name__}
    second = [] if recipe.fine_tuning is None else [("fine_tuning", type(recipe.fine_tuning), recipe.fine_tuning)]
    options = dataclasses.make_dataclass(
        "Options",
        [
            ("out", Path, Path("runs") / recipe.name),
            ("start", Path | None, None),
            ("seeds", int, 1),
            ("devices", int, 1),
            ("nodes", int, 1),
            ("strategy", Literal["ddp", "fsdp"], "ddp"),
            ("stages", Literal["all", "first"], "all"),
            ("recipe_file", Path | None, None),
            ("model", type(model_options.defaults), model_options.defaults),
            ("data", type(recipe.data), recipe.data),
            ("training", type(recipe.training), recipe.training),
            *second,
        ],
        frozen=True,
        kw_only=True,
        namespace=namespace,
    )
    markers = (tyro.conf.AvoidSubcommands,)  # --training.schedule names the kind of a schedule
    chosen: Any = parse(options, arguments, f"train {recipe.name}", config=markers)
    for name in ("seeds", "devices", "nodes"):
        if getattr(chosen, name) < 1:
            raise UserError(f"--{name} must be at least 1, not {getattr(chosen, name)}")
    if chosen.stages == "first" and not second:
        raise UserError("--stages first is for recipes of two stages; this one, or what --start leaves of it, has one")
    recipe = dataclasses.replace(
        recipe,
        options=model_options.changes(chosen.model),
        data=chosen.data,
        training=chosen.training,
        fine_tuning=chosen.fine_tuning if second and chosen.stages == "all" else None,
    )
    return Chosen(recipe, chosen.out, chosen.start, chosen.seeds, chosen.devices, chosen.nodes, chosen.strategy)


def _given(arguments: Sequence[str], option: str) -> str | None:
    """The value of an option that must be known before the others."""
    for place, argument in enumerate(arguments):
        if argument == option and place + 1 < len(arguments):
            return arguments[place + 1]
        if argument.startswith(f"{option}="):
            return argument.removeprefix(f"{option}=")
    return None


def _started(recipe: "Recipe", start: Path) -> "Recipe":
    """The recipe for the model of a trained run, whose first stage is that run where the recipe has two."""
    from legenda.io import read_json
    from legenda.models import describe_model
    from legenda.models.checkpoint import CONFIG

    path = start / CONFIG
    described = read_json(path, "--start takes the folder of a trained run")
    try:
        name, options = described["model"]["name"], dict(described["model"]["options"])
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f'{path} has no usable "model" part; --start takes the folder of a trained run') from error
    derived = describe_model(name).config.derived
    options = {key: value for key, value in options.items() if key not in derived}
    if recipe.fine_tuning is not None:
        recipe = dataclasses.replace(recipe, training=recipe.fine_tuning, fine_tuning=None)
    return dataclasses.replace(recipe, model=name, options=options)


def _scheduled(recipe: "Recipe", arguments: Sequence[str]) -> tuple["Recipe", list[str]]:
    """The recipe with the schedules that the command line names, and the rest of the command line."""
    from legenda.training import SCHEDULES

    left = list(arguments)
    for stage in ("training", "fine_tuning"):
        settings = getattr(recipe, stage)
        option = f"--{stage.replace('_', '-')}.schedule"
        name = _given(left, option)
        if name is None or settings is None:
            continue
        known = name.replace("-", "_")
        if known not in SCHEDULES:
            raise UserError(f"there is no schedule {name!r}; {nearest(known, SCHEDULES)}")
        place = next(place for place, text in enumerate(left) if text.split("=")[0] == option)
        del left[place : place + (1 if "=" in left[place] else 2)]
        recipe = dataclasses.replace(recipe, **{stage: dataclasses.replace(settings, schedule=SCHEDULES[known]())})
    return recipe, left
