"""`legenda train`: train a recipe into a run folder."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from legenda.errors import ConfigError

if TYPE_CHECKING:
    from legenda.cli._train_options import TrainOptions
    from legenda.recipes import Recipe
    from legenda.tasks import Reward

_USAGE = """usage: legenda train RECIPE [--out RUN] [--init-from RUN] [--seeds N] [--devices N] [--nodes N]
                     [--strategy ddp|fsdp] [--stages all|first] [--recipe-file FILE] [--model.FIELD VALUE]
                     [--data.FIELD VALUE] [--training.FIELD VALUE] [--fine-tuning.FIELD VALUE]

Train a recipe into a run folder (runs/RECIPE unless --out is given); called again, it resumes. A recipe has one or two
stages: training, and fine-tuning, which starts from the best model of the first.

--init-from RUN starts from the model of a trained run, with its vocabulary and configuration; it replaces the first
of two stages: legenda train flickr8k.ngsan --init-from runs/x --out runs/y fine-tunes x.
--stages first stops after the first of two, so that several runs can start from its model.
--model.decoder.name transformer gives the model the decoder of another, whose options are --model.decoder.FIELD VALUE.
--training.schedule and --training.objective take names: step_decay, table, noam, plateau, constant, cosine,
inverse_sqrt; and cross_entropy, self_critical.
--seeds 3 trains three runs, RUN/seed0 to RUN/seed2. --devices and --nodes share every step among processes, each with
the whole model, or with a shard of it (--strategy fsdp); with torchrun, each of its processes calls this command.
--recipe-file FILE reads user-defined recipes, and rewards, from a Python file.

legenda recipes lists the recipes; legenda train RECIPE --help lists every field that can be set."""


def run(arguments: Sequence[str]) -> None:
    """Train, and print the validation score and the next command."""
    if arguments and arguments[0] in ("-h", "--help"):
        print(_USAGE)
        return
    if not arguments or arguments[0].startswith("-"):
        raise ConfigError("the recipe comes first, as in legenda train scenes.ngsan; legenda recipes lists them")
    from legenda.cli._train_options import parse_train
    from legenda.recipes import get_recipe, read_recipes
    from legenda.recipes.overrides import option_value, with_seed

    file = option_value(arguments, "--recipe-file")
    user_recipes = None if file is None else read_recipes(file)
    options = parse_train(get_recipe(arguments[0], user_recipes), arguments[1:])
    rewards = None if user_recipes is None else user_recipes.rewards
    if options.seeds == 1:
        _train(options, options.recipe, options.out, rewards)
        return
    folders = [options.out / f"seed{seed}" for seed in range(options.seeds)]
    for seed, folder in enumerate(folders):
        _train(options, with_seed(options.recipe, seed), folder, rewards)
    print(f"as an ensemble: legenda evaluate {' '.join(map(str, folders))}")


def _train(options: "TrainOptions", recipe: "Recipe", out: Path, rewards: "Mapping[str, Reward] | None") -> None:
    from legenda.evaluation.runs import describe_data
    from legenda.training import check_folder, train

    check_folder(out)
    task = recipe.task(recipe.data.open(lambda line: print(line, file=sys.stderr, flush=True)))
    result = train(
        recipe.model,
        recipe.model_overrides,
        task,
        recipe.stages,
        out,
        sections={"recipe": recipe.name, "data": describe_data(recipe.data)},
        init_from=options.init_from,
        rewards=rewards,
        devices=options.devices,
        nodes=options.nodes,
        strategy=options.strategy,
    )
    if result.is_global_zero:
        score = f"{recipe.stages[-1].monitor} {result.best:.3f} after epoch {result.best_epoch}"
        print(f"{out}: {score}, {result.seconds:.0f} s of training\nnext: legenda evaluate {out}")
