"""The tables of the papers and all recipes, in TOML files in which a row of a table stands once.

A file has named parts, which all files share, and tables and recipes that name them:

    [data.NAME]           the settings of a data set; its `kind` is a name of `legenda.data.registry.DATASETS`
    [training.NAME]       the settings of a training stage
    [sizes.NAME]          fields of models' configurations: a model gets those that it has, and its row precedes them;
                          `max_dropout` limits all its dropout rates
    [tables.PAPER.TABLE]  a table of a paper: title, source, metrics, rows; the data, training (a list of stages), sizes
                          and task of the recipes that its rows define
    [[recipes]]           recipes without published scores: the same, where rows end before the scores

A part with `like` has the settings of another part where it does not name them. The rows:

    ["SCST", [34.2, 26.7]]                                a system that is not implemented here
    ["AoANet", "coco.aoanet", [38.9, 29.2]]               the recipe of a row elsewhere; "coco.aoanet x 4": an ensemble
    ["BN", "bn", "nsan", { norm = "bn" }, [38.8, 28.9]]   label, name, model, overrides (may be missing) and scores

Scores are in percent, nan for a blank. The last of these rows defines the recipe PREFIX.bn. The prefix is the table's
name, as in ngsan.table2.bn, unless the table has another: coco.MODEL for the models that the papers are about, the name
of the data set for other tasks (vatex.nsan, vqa2.mcan_small). scenes.MODEL is any captioning model, and scenes.RECIPE
the model of any captioning recipe, with small sizes on the embedded scenes.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import TYPE_CHECKING, Literal, TypedDict

from legenda.config import merge
from legenda.errors import ConfigError, did_you_mean
from legenda.models.registry import configure_sizeless, describe_model, list_models
from legenda.registry import PLUGIN_HINT, Registry
from legenda.runtime.settings import Overrides

if TYPE_CHECKING:
    from legenda.data.registry import Data
    from legenda.recipes import Recipe
    from legenda.training.config import TrainingConfig

_CAPTIONING = ("photo", "scenes", "flickr8k", "ngsan", "aoanet", "xlan", "mdsan", "baselines")
FILES: Registry[Traversable] = Registry(
    "file of recipes", {name: files("legenda.papers") / f"{name}.toml" for name in _CAPTIONING}
)
"""The files that hold the tables and recipes."""
SCENES = "scenes."
"""The prefix of small recipes on the embedded scenes."""

RECIPES: Registry[Recipe] = Registry("recipe", {})
"""The recipes that users registered, which precede those of the library."""

Stages = Literal["all", "first"]
_ON_SCENES = "small, on scenes: "


def register_recipe(recipe: Recipe) -> Recipe:
    """Add a recipe under its name, and return it."""
    RECIPES.add(recipe.name, recipe)
    return recipe


@dataclass(frozen=True)
class PaperRow:
    """One row: its label in the paper, its recipe, and the paper's scores in percent.

    recipe: None for a system that is not implemented here. scores: one for each metric of the table, None for a blank.
    members: runs of the recipe, with different seeds, that form an ensemble.
    """

    label: str
    recipe: str | None
    scores: tuple[float | None, ...]
    members: int = 1

    @property
    def key(self) -> str | None:
        """The name of the row on the command line: the end of its recipe's name, and xN for an ensemble of N."""
        if self.recipe is None:
            return None
        return self.recipe.rpartition(".")[2] + (f"_x{self.members}" if self.members > 1 else "")


@dataclass(frozen=True, kw_only=True)
class PaperTable:
    """Scores as a paper reports them, most of them on Karpathy's test split of COCO.

    name: that on the command line. source: paper and number of the table. metrics: the columns, by the names of
    `legenda.metrics` ("CIDEr-D", which the papers also call CIDEr); "accuracy on testA" is that of another split, and
    columns that only a server computes have no scores here. note: a remark. stages: "first" where the rows end with
    cross-entropy. split: that of the scores, where the command line does not choose it. search: that of the paper, over
    the models' own.
    """

    name: str
    title: str
    source: str
    metrics: tuple[str, ...]
    rows: tuple[PaperRow, ...]
    note: str = ""
    stages: Stages = "all"
    split: str = ""
    search: Overrides = field(default_factory=lambda: {"beam_size": 3})

    @property
    def is_of_server(self) -> bool:
        """Whether only a server computes the scores: COCO's (c5, c40) or EvalAI's of VQA."""
        return all(metric.endswith((" c5", " c40")) or metric.startswith("test-") for metric in self.metrics)

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row.scores) != len(self.metrics):
                raise ValueError(f"{self.name}, {row.label}: {len(row.scores)} scores for {len(self.metrics)} metrics")


class _Group(TypedDict, total=False):
    """What the rows of a table or of a list of recipes share; see the docstring of the module."""

    title: str
    source: str
    prefix: str
    metrics: list[str]
    rows: list[list]
    data: str
    training: list[str]
    sizes: str
    task: str


@dataclass(frozen=True)
class _Definition:
    """A row that defines a recipe, with the table or the group of recipes that it is in."""

    summary: str
    model: str
    overrides: Mapping[str, object]
    group: _Group


@dataclass(frozen=True)
class _Library:
    """The content of all files: parts by kind and name, tables and definitions of recipes by name."""

    parts: Mapping[str, dict[str, dict[str, object]]]
    tables: dict[str, PaperTable]
    definitions: dict[str, _Definition]


def all_recipes() -> dict[str, Recipe]:
    """Return every recipe by its name, those on scenes for models only."""
    names = [*_library().definitions, *(SCENES + model for model in list_models()), *RECIPES]
    return {name: get_recipe(name) for name in names}


def recipe_summaries() -> dict[str, str]:
    """Return the summary of every recipe by its name, as `all_recipes` has them, without PyTorch."""
    own = {name: RECIPES.get(name).summary for name in RECIPES}
    on_scenes = {SCENES + model: _ON_SCENES + describe_model(model).summary for model in list_models()}
    return {name: row.summary for name, row in _library().definitions.items()} | on_scenes | own


def get_recipe(name: str) -> Recipe:
    """Return the recipe of that name; raise ConfigError with the most similar name when there is none."""
    if name in RECIPES:
        return RECIPES.get(name)
    if name in _library().definitions:
        return _build(name)
    small = _on_scenes(name.removeprefix(SCENES)) if name.startswith(SCENES) else None
    if small is None:
        raise ConfigError(f"there is no recipe {name!r}; {did_you_mean(name, recipe_summaries())}{PLUGIN_HINT}")
    return small


def all_tables() -> dict[str, PaperTable]:
    """Return every table by its name."""
    return _library().tables


def get_table(name: str) -> PaperTable:
    """Return the table of that name; raise ConfigError with the closest name when there is none."""
    tables = all_tables()
    if name not in tables:
        raise ConfigError(f"there is no table {name!r}; {did_you_mean(name, tables)}")
    return tables[name]


def shared_recipe(recipe: str, stages: Stages, prefix: str = "") -> tuple[str, Stages]:
    """Return the first recipe, with its stages, among the rows of all tables that trains the same configuration.

    prefix: that of the recipes' names, "scenes." for the small models. Recipes that end with cross-entropy come before
    first stages of others. Raise ConfigError where the prefix is for captioning only.
    """
    row = get_recipe(recipe)
    if prefix and row.task != "captioning":
        raise ConfigError(f"{recipe} has no small model on the embedded scenes, as captioning has; leave out --scenes")
    row = get_recipe(prefix + recipe)
    return _first_rows(prefix)[_configuration(row, "all" if len(row.stages) == 1 else stages)]


@cache
def _first_rows(prefix: str) -> dict[str, tuple[str, Stages]]:
    """Return the first recipe of the tables' rows, with its stages, by configuration."""
    rows = [(row.recipe, table.stages) for table in all_tables().values() for row in table.rows if row.recipe]
    first: dict[str, tuple[str, Stages]] = {}
    for name, stages in sorted(rows, key=lambda row: row[1] == "first"):
        with suppress(ConfigError):  # other tasks than captioning have no small models by that prefix
            recipe = get_recipe(prefix + name)
            kept: Stages = "all" if len(recipe.stages) == 1 else stages
            first.setdefault(_configuration(recipe, kept), (recipe.name, kept))
    return first


def _configuration(recipe: Recipe, stages: Stages) -> str:
    """Return a string that is equal for equal models, data and stages."""
    model = configure_sizeless(recipe.model, recipe.model_overrides)
    return repr((recipe.task, type(model).__qualname__, model, recipe.data, recipe.select_stages(stages).stages))


def _on_scenes(name: str) -> Recipe | None:
    """Return the recipe of a captioning model, or of a captioning recipe's model, with small sizes on scenes.

    None where there is none of that name, or where it is on scenes itself. Sizes that the recipe overrides stay.
    """
    if name in list_models():
        model, overrides, summary = name, {}, describe_model(name).summary
    elif name in RECIPES or name in _library().definitions:
        recipe = get_recipe(name)
        if recipe.task != "captioning" or getattr(recipe.data, "kind", None) == "scenes":
            return None
        model, overrides, summary = recipe.model, recipe.model_overrides, recipe.summary
    else:
        return None
    from legenda.recipes import Recipe

    return Recipe(
        name=SCENES + name,
        summary=_ON_SCENES + summary,
        model=model,
        model_overrides={**_sizes_of(model, "scenes"), **overrides},
        data=_data("scenes"),
        stages=(_stage("scenes"),),
    )


@cache
def _build(name: str) -> Recipe:
    from legenda.recipes import Recipe  # late, as in the other functions: listing the names takes no PyTorch

    row = _library().definitions[name]
    sizes = _sizes_of(row.model, row.group["sizes"]) if "sizes" in row.group else {}
    return Recipe(
        name=name,
        summary=row.summary,
        model=row.model,
        model_overrides={**sizes, **row.overrides},
        data=_data(row.group["data"]),
        stages=tuple(_stage(stage) for stage in row.group["training"]),
        task=row.group.get("task", "captioning"),
    )


def _sizes_of(model: str, name: str) -> dict[str, object]:
    """Return those sizes that a model has and its name does not fix, and its dropout rates above `max_dropout`."""
    sizes, entry = _part("sizes", name), describe_model(model)
    defaults = {field: info.default for field, info in entry.config.model_fields.items()}
    kept = {field: value for field, value in sizes.items() if field in defaults and field not in entry.settings}
    if isinstance(limit := sizes.get("max_dropout"), float):
        rates = {field: rate for field, rate in defaults.items() if field.endswith("dropout")}
        kept |= {field: limit for field, rate in rates.items() if isinstance(rate, float) and rate > limit}
    return kept


@cache
def _data(name: str) -> Data:
    from legenda.data.registry import DATASETS  # late: the names and summaries of recipes need no arrays

    return DATASETS.configure(_part("data", name), f"data.{name}")


@cache
def _stage(name: str) -> TrainingConfig:
    from legenda.training.config import TrainingConfig

    return merge(TrainingConfig, _part("training", name), f"training.{name}")


def _part(kind: str, name: str) -> dict[str, object]:
    """Return the settings of a named part over those of the part that it is like."""
    part = dict(_library().parts[kind][name])
    base = part.pop("like", None)
    return _part(kind, str(base)) | part if base else part


@cache
def _library() -> _Library:
    library = _Library({"data": {}, "training": {}, "sizes": {}}, {}, {})
    for file in FILES:
        content = tomllib.loads(FILES.get(file).read_text(encoding="utf-8"))
        for kind, parts in library.parts.items():
            parts |= content.get(kind, {})
        for paper, tables in content.get("tables", {}).items():
            for key, group in tables.items():
                name = f"{paper}.{key}"
                rows = tuple(_read_row(library, group, group.get("prefix", name), *row) for row in group["rows"])
                known = ("title", "source", "note", "stages", "split", "search")
                fields = {key: group[key] for key in known if key in group}
                table = PaperTable(name=name, metrics=tuple(group["metrics"]), rows=rows, **fields)
                library.tables[name] = table
        for group in content.get("recipes", ()):
            for row in group["rows"]:
                _read_row(library, group, group["prefix"], *row)
    return library


def _read_row(library: _Library, group: _Group, prefix: str, label: str, *parts: object) -> PaperRow:
    """Return a row as the docstring of the module has it, and add the recipe that it defines to the library."""
    names = [part for part in parts if isinstance(part, str)]
    overrides = next((part for part in parts if isinstance(part, dict)), {})
    scores = next((part for part in parts if isinstance(part, list)), [])
    recipe, _, members = names[0].partition(" x ") if names else ("", "", "")
    if len(names) == 2:
        recipe = f"{prefix}.{recipe}" if prefix else recipe
        if recipe in library.definitions:
            raise ValueError(f"two rows define the recipe {recipe}")
        summary = f"{label} ({group['source']})" if "source" in group else f"{group['title']}: {label}"
        library.definitions[recipe] = _Definition(summary, names[1], overrides, group)
    return PaperRow(label, recipe or None, tuple(None if math.isnan(s) else s for s in scores), int(members or 1))


__all__ = [
    "RECIPES",
    "PaperRow",
    "PaperTable",
    "all_recipes",
    "all_tables",
    "get_recipe",
    "get_table",
    "register_recipe",
    "shared_recipe",
]
