"""`legenda train`: a recipe becomes a run folder."""

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from legenda.apps.options import parse
from legenda.errors import UserError

if TYPE_CHECKING:
    from legenda.recipes import Recipe

_USAGE = """usage: legenda train RECIPE [--out RUN] [--model.FIELD VALUE] [--data.FIELD VALUE] [--training.FIELD VALUE]

Trains a recipe into a run folder (runs/RECIPE unless --out says otherwise); called again, it goes on where it was
stopped. legenda recipes lists the recipes; legenda train RECIPE --help lists every field that can be set."""


def run(arguments: Sequence[str]) -> None:
    """Trains, and says where the model is and what to do with it."""
    if arguments and arguments[0] in ("-h", "--help"):
        print(_USAGE)
        return
    if not arguments or arguments[0].startswith("-"):
        raise UserError("the recipe comes first, as in legenda train scenes.ngsan; legenda recipes lists them")
    from legenda.apps.runs import describe_data
    from legenda.recipes import get_recipe
    from legenda.training import check_folder, train

    recipe, out = _configured(get_recipe(arguments[0]), arguments[1:])
    check_folder(out)
    data = recipe.data.open(lambda text: print(text, file=sys.stderr, flush=True))
    sections = {"recipe": recipe.name, "data": describe_data(recipe.data)}
    trained = train(recipe.model, recipe.options, data, recipe.training, out, sections=sections)
    print(
        f"{out}: {recipe.training.best_by} {trained.best:.3f} after epoch {trained.best_epoch}, "
        f"{trained.seconds:.0f} s of training\nnext: legenda evaluate {out}"
    )


def _configured(recipe: "Recipe", arguments: Sequence[str]) -> tuple["Recipe", Path]:
    """The recipe with what the command line changes, and the run folder."""
    from legenda.models import describe_model

    entry = describe_model(recipe.model)
    own = {**entry.settings, **recipe.options}
    derived = ("vocab_size", "feature_dim")  # they follow from the data, so they are no options here
    hidden = [(name, tyro.conf.Suppress[int], 1) for name in derived]
    model = dataclasses.make_dataclass("Model", hidden, bases=(entry.config,), frozen=True, kw_only=True)
    namespace: dict[str, Any] = {"__doc__": f"Trains {recipe.name} ({recipe.summary}).", "__module__": __name__}
    options = dataclasses.make_dataclass(
        "Options",
        [
            ("out", Path, Path("runs") / recipe.name),
            ("model", model, model(**own)),
            ("data", type(recipe.data), recipe.data),
            ("training", type(recipe.training), recipe.training),
        ],
        frozen=True,
        kw_only=True,
        namespace=namespace,
    )
    chosen: Any = parse(options, arguments, f"train {recipe.name}")
    shown = [field.name for field in dataclasses.fields(entry.config) if field.name not in derived]
    values = {name: getattr(chosen.model, name) for name in shown}
    changed = {name: value for name, value in values.items() if value != entry.settings.get(name)}
    return dataclasses.replace(recipe, options=changed, data=chosen.data, training=chosen.training), chosen.out
