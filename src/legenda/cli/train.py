"""`legenda train`: train a recipe into a run folder."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from legenda.cli._train_help import USAGE
from legenda.errors import ConfigError

if TYPE_CHECKING:
    from legenda.cli._train_options import TrainOptions
    from legenda.recipes import Recipe


def run(arguments: Sequence[str]) -> None:
    """Train, and print the validation score and the next command."""
    if arguments and arguments[0] in ("-h", "--help"):
        print(USAGE)
        return
    from legenda.cli._train_options import parse_train
    from legenda.recipes import get_recipe, read_recipe
    from legenda.recipes.overrides import option_value, with_seed

    config = option_value(arguments, "--config")
    if config is None and (not arguments or arguments[0].startswith("-")):
        raise ConfigError("the recipe comes first, as in legenda train scenes.ngsan; legenda recipes lists them")
    if config is None:
        options = parse_train(get_recipe(arguments[0]), arguments[1:])
    else:
        options = parse_train(read_recipe(Path(config)), arguments)
    if options.seeds == 1:
        _train(options, options.recipe, options.out)
        return
    folders = [options.out / f"seed{seed}" for seed in range(options.seeds)]
    for seed, folder in enumerate(folders):
        _train(options, with_seed(options.recipe, seed), folder)
    print(f"as an ensemble: legenda evaluate {' '.join(map(str, folders))}")


def _train(options: "TrainOptions", recipe: "Recipe", out: Path) -> None:
    from legenda.experiment import train_recipe

    result = train_recipe(
        recipe,
        out,
        progress=lambda line: print(line, file=sys.stderr, flush=True),
        **options.settings,
    )
    if result.is_global_zero:
        score = f"{recipe.stages[-1].monitor} {result.best:.3f} after epoch {result.best_epoch}"
        print(f"{out}: {score}, {result.seconds:.0f} s of training\nnext: legenda evaluate {out}")
