"""`legenda table`: train and evaluate the rows of a paper's table, and compare their scores with the paper's."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal

import torch
import tyro
from pydantic import Field

from legenda.cli._parallel import run_parallel
from legenda.cli.options import Search, parse, search_arguments
from legenda.cli.train import refuse_seeds
from legenda.config import Config, Count, PositiveInt, to_json
from legenda.data.registry import data_settings
from legenda.errors import ConfigError, LegendaError, did_you_mean
from legenda.evaluation.evaluate import SUBMISSION_WEIGHTS, ScoreDict, caption_settings, read_scores
from legenda.features.readers import split_kind
from legenda.hub import portable_name
from legenda.io import read_json, write_text
from legenda.models import describe_model
from legenda.models.checkpoint import build_on_meta
from legenda.models.registry import MODELS, configure_sizeless
from legenda.models.weights import read_checksum
from legenda.papers import PaperRow, PaperTable, all_tables, get_recipe, get_table, shared_recipe
from legenda.recipes import Recipe, changes_first, parse_changes, stage_names
from legenda.registry import plugin_options
from legenda.report.tables import markdown, score_table, terminal_table, write_score_page
from legenda.run_folder import (
    CONFIG,
    STAGE_WEIGHTS,
    RunConfig,
    evaluation_path,
    name_stages,
    read_config,
    split_model,
    stages_of,
    weights_path,
)
from legenda.runtime.settings import Overrides
from legenda.tasks.base import TASKS, Task
from legenda.terminal import create_console, progress_bar
from legenda.training import is_finished
from legenda.training.config import TrainingConfig
from legenda.training.launch import differences, estimate_seconds

PARAMETERS = "parameters (M)"
"""The column of tables with the millions of trainable parameters; values are hundredths, as scores are."""


class TableOptions(Config):
    """Train and evaluate the rows of a paper's table, and print their scores with the paper's.

    The table comes first, then changes of the recipes of all rows, as legenda train takes them: legenda table
    ngsan.table2 data.annotations=dataset_coco.json data.features=coco.safetensors. The runs of a row are OUT/RECIPE/
    seed0 and so on; called again, or for another table with a row of the same configuration, finished runs are used and
    others are resumed. Rows that are ensembles train their members. The search is that of the paper, with 3 or 4 beams,
    but for what its options set. Writes OUT/TABLE.md and OUT/TABLE.html, one page that opens offline.

    Without a table it lists all tables. A row that fails does not affect the others and is named at the end.
    """

    examples: ClassVar[tuple[str, ...]] = (
        "",
        "ngsan.table2 --scenes",
        "ngsan.table2 data.annotations=dataset_coco.json data.features=coco.safetensors",
    )
    usual: ClassVar[tuple[str, ...]] = ("out", "rows", "seeds", "scenes", "split", "estimate")

    arguments: tyro.conf.Positional[tuple[str, ...]] = ()
    """A table such as ngsan.table2, then changes such as training.epochs=3."""
    out: Path | None = None
    """The folder of the runs and the tables; by default runs/tables, with --scenes runs/scenes.tables."""
    rows: tuple[str, ...] = ()
    """Rows, by the ends of their recipes' names; by default all."""
    seeds: Count = 1
    """Runs of each row."""
    processes: PositiveInt | None = None
    """Rows trained at once; by default the number of CUDA devices, or 1 without any."""
    split: Literal["val", "test"] = "test"
    """The split that is captioned and scored."""
    scenes: bool = False
    """Train small models on the embedded scenes instead of COCO: minutes for each row, and no downloads. The scores are
    not comparable with the paper's."""
    test_features: Path | None = None
    """The features of test2014, for tables that COCO's server scores; its files are written to OUT/TABLE/ROW."""
    estimate: Literal["first", "only", "none"] = "first"
    """Print the hours of the trainings that remain, measured in a few steps of each: before them, or without them."""
    search: Search = Field(default_factory=dict)

    def search_of(self, table: PaperTable) -> Overrides:
        """Return the search of a table's paper, with what the options set over it."""
        return {**table.search, **self.search}

    @property
    def changes(self) -> tuple[str, ...]:
        """The changes of all recipes."""
        return self.arguments[1:]

    def check(self) -> None:
        """Raise ConfigError where the table is not first, or seeds are set twice."""
        if self.arguments and "=" in self.arguments[0]:
            raise ConfigError("the table comes first, as in legenda table ngsan.table2; legenda table lists them")
        if self.seeds > 1:
            refuse_seeds(parse_changes(self.changes))


@dataclass(frozen=True)
class RowRun:
    """The run of one row and seed, or the runs of an ensemble, and how they are trained and evaluated.

    key: the key of the row in its table. folders: the folders of the runs; several form an ensemble, whose evaluation
    is in the first. splits: the splits to evaluate, each with the suffix of its scores, such as " on testA". stage: 1
    where the model is that of the first stage of longer runs. submission: the folder of the files that a server scores,
    or None. test_features: the features of test2014 for these files. train: the command `legenda train` of a run.
    is_scored: whether the run has scores of its own; members of ensembles need none. remark: how the training of an
    existing run differs.
    """

    key: str
    recipe: Recipe
    folders: tuple[Path, ...]
    splits: Mapping[str, str]
    search: Overrides
    metrics: str
    stage: int | None = None
    submission: Path | None = None
    test_features: Path | None = None
    train: tuple[str, ...] = ()
    is_scored: bool = True
    remark: str = ""

    @property
    def name(self) -> str:
        """The path of the run below the folder of the tables; for an ensemble, with its number of runs."""
        folder, members = self.folders[0], len(self.folders)
        return f"{folder.parent.name}/{folder.name if members == 1 else f'ensemble{members}'}"

    def uses(self, name: str) -> bool:
        """Return whether a name is that of the row's run, or of a member of its ensemble."""
        return name in (self.name, *(f"{folder.parent.name}/{folder.name}" for folder in self.folders))

    def is_trained(self) -> bool:
        """Return whether all trainings, or their first stages where those are needed, are finished."""
        if self.stage is not None:
            return all(weights_path(folder, self.stage).exists() for folder in self.folders)
        return all(is_finished(folder, self.recipe.name) for folder in self.folders)

    def is_evaluated(self) -> bool:
        """Return whether the scores, or the files for the server, exist and are of these weights."""
        if self.submission is None:
            return self.scores() is not None
        files = list(self.submission.glob("*_results.json"))
        path = self.submission / SUBMISSION_WEIGHTS
        is_complete = len(files) == (2 if self.recipe.task == "captioning" else 1) and path.exists()
        return is_complete and read_json(path, "delete it to evaluate again") == self._weights()

    def scores(self) -> ScoreDict | None:
        """Return the scores in 0..1; None unless all runs are trained, and evaluated as they are now."""
        if not self.is_trained():
            return None
        scores: ScoreDict = {}
        for split, suffix in self.splits.items():
            path = evaluation_path(self.folders[0], split, ensemble=len(self.folders) > 1, stage=self.stage)
            values = read_scores(path, self._settings(split)) if path.exists() else None
            if values is None:
                return None
            scale = 1 if self.recipe.task == "captioning" else 100  # other tasks write percentages
            scores |= {name + suffix: None if value is None else value / scale for name, value in values.items()}
        built = build_on_meta(*split_model(_read_config(self.folders[0]), self.folders[0]))
        return scores | ({} if built is None else {PARAMETERS: built.parameter_count / 1e8})

    def _weights(self) -> list[str]:
        return [read_checksum(weights_path(folder, self.stage)) for folder in self.folders]

    def _settings(self, split: str) -> dict[str, object]:
        settings = {"task": self.recipe.task, "split": split, **self.search}
        if self.recipe.task == "captioning":
            settings = caption_settings(_read_config(self.folders[0]), split, self.search, self.metrics)
        return {**settings, "weights": self._weights()}

    def commands(self) -> list[list[str]]:
        """Return the training unless it is finished, and the evaluation of each split without scores."""
        plugins = plugin_options()
        commands = [] if self.is_trained() else [[*self.train, *plugins]]
        if not self.is_scored or self.is_evaluated():
            return commands
        rest = search_arguments(self.search)
        if self.stage is not None:
            rest += ["--stage", str(self.stage)]
        if self.submission is not None:
            rest += ["--submission-dir", str(self.submission), "--algorithm", self.key]
            rest += [] if self.test_features is None else ["--test-features", str(self.test_features)]
        elif self.recipe.task == "captioning":
            rest += ["--metrics", self.metrics]
        evaluate = ["evaluate", *map(str, self.folders)]
        return [*commands, *([*evaluate, "--split", split, *rest, *plugins] for split in self.splits)]


def run(arguments: Sequence[str]) -> None:
    """Train and evaluate what remains, and write and print the table."""
    options = parse(TableOptions, changes_first(arguments), "table")
    options.check()
    if not options.arguments:
        width = max(map(len, all_tables()))
        for name, table in all_tables().items():
            print(f"{name:<{width}}  {table.title} ({table.source})")
        print("\nlegenda table NAME trains the rows of a table; with --scenes, small models on the embedded scenes.")
        return
    table = get_table(options.arguments[0])
    out = options.out or Path("runs") / ("scenes.tables" if options.scenes else "tables")
    runs, ensembles = _make_runs(table, options, out)
    environments = process_environments(options.processes)
    if options.estimate == "only":
        return _print_estimate(runs, len(environments))
    if options.estimate == "first" and not all(run.is_trained() for run in runs):
        print_estimate_of(arguments)
    failed: dict[str, str] = {}
    for group in (runs, ensembles):
        work: dict[str, list[list[str]]] = {}
        for row in group:
            commands = row.commands()
            if len(commands) > len(work.get(row.name, [])) and not any(map(row.uses, failed)):
                work[row.name] = commands
        failed |= run_parallel(work, environments) if work else {}
    _write_table(table, options, out, [run for run in (*runs, *ensembles) if run.is_scored], failed)
    if failed:
        reasons = "; ".join(f"{name} ({reason})" for name, reason in failed.items())
        raise LegendaError(f"{len(failed)} of {len(runs)} trainings failed: {reasons}; remove the cause and call again")


def _make_runs(table: PaperTable, options: TableOptions, out: Path) -> tuple[list[RowRun], list[RowRun]]:
    """Return the single runs, one for each row and seed and for each member, and the ensembles.

    Raise LegendaError for an unknown row, a wrong change or missing data.
    """
    of_server = table.is_of_server and not options.scenes
    rows = {row.key: row for row in table.rows if row.key is not None}
    for key in options.rows:
        if key not in rows:
            raise ConfigError(f"{table.name} has no row {key!r}; {did_you_mean(key, rows)}")
    runs, ensembles, search = [], [], options.search_of(table)
    splits = {name: f" on {name}" for _, _, name in (metric.partition(" on ") for metric in table.metrics) if name}
    for key, row in rows.items():
        if options.rows and key not in options.rows:
            continue
        name, stages = shared_recipe(str(row.recipe), table.stages, "scenes." if options.scenes else "")
        recipe, changes = _check_recipe(name, key, options.changes)
        recipe = recipe.select_stages(stages)
        features = options.test_features
        needs_features = of_server and recipe.task == "captioning" and options.estimate != "only"
        if needs_features and (features is None or not split_kind(features)[0].exists()):
            missing = "" if features is None else f", but {features} does not exist"
            raise ConfigError(
                f"COCO's server scores {table.name}{missing}; name features of test2014 with --test-features"
            )
        several = options.seeds > 1 or row.members > 1
        folders, stage = _folders(row, table, options, out)
        metrics, submission = "fast" if options.scenes else "auto", out / table.name / key if of_server else None
        scored = splits or {table.split or options.split: ""}
        single = RowRun(key, recipe, (), scored, search, metrics, stage, submission, features)
        of_row: list[RowRun] = []
        for seed, folder in enumerate(folders):
            seeds = tuple(f"{stage}.seed={seed}" for stage in stage_names(recipe) if several)
            arguments = (*changes, *seeds)
            remark = _compare(folder, recipe.with_seed(seed) if several else recipe, stage, arguments)
            first = ("--stages", "first") if stages == "first" else ()
            train = ("train", name, *arguments, *first, "--out", str(folder))
            of_row.append(replace(single, folders=(folder,), train=train, is_scored=row.members == 1, remark=remark))
        runs += of_row
        if row.members > 1:  # the last member comes first, so that ensembles of other sizes have other files
            members = of_row[: row.members]
            remark = "; ".join(dict.fromkeys(run.remark for run in members if run.remark))
            ensembles.append(replace(single, folders=tuple(reversed(folders[: row.members])), remark=remark))
    return runs, ensembles


def _check_recipe(name: str, key: str, changes: Sequence[str]) -> tuple[Recipe, tuple[str, ...]]:
    """Return the recipe of a row with its changes, and those, after checking them and the data.

    Changes of a second stage are left out where the row has one stage alone, so that they hold for several tables.
    """
    recipe = get_recipe(name)
    try:
        parsed = parse_changes(changes)
        for part in ({"fine_tuning"} & parsed.keys()) - set(stage_names(recipe)):
            if isinstance(fields := parsed[part], Mapping) and fields.keys() <= TrainingConfig.model_fields.keys():
                del parsed[part]
                changes = [change for change in changes if re.split("[.=]", change)[0] != part]
        recipe = recipe.override(parsed)
    except LegendaError as error:
        raise ConfigError(f"row {key}: {error}") from error
    paths = {field: value for field, value in dict(recipe.data).items() if isinstance(value, Path)}
    for value in paths.values():
        if not value.exists():
            options = " and ".join(f"data.{field}=" for field in paths)
            scenes = ", or train on the embedded scenes with --scenes" if recipe.task == "captioning" else ""
            raise ConfigError(f"{value} does not exist; name the data with {options}{scenes}")
    return recipe, tuple(changes)


def _compare(folder: Path, recipe: Recipe, stage: int | None, changes: Sequence[str]) -> str:
    """Return how the training of the run in a folder differs from that of a recipe; "" for a folder without a run.

    stage: 1 where the recipe is the first stage of a longer run. Raise ConfigError for another model, other data, and
    a field that the changes name: the run is that of another row.
    """
    if not (folder / CONFIG).exists():
        return ""
    config = _read_config(folder)
    (name, trained), kind = split_model(config, folder), describe_model(recipe.model).config
    model = to_json(configure_sizeless(recipe.model, recipe.model_overrides))
    for field in (*kind.derived, "backbone"):
        trained.pop(field, None), model.pop(field, None)
    if name not in MODELS or describe_model(name).config is not kind:
        trained, model = {"name": name}, {"name": recipe.model}
    expected = {"task": recipe.task, "model": model, "data": to_json(recipe.data, folder)}
    source = recipe.init_from and portable_name(recipe.init_from)
    expected |= {"init_from": to_json(source, folder), **to_json(name_stages(recipe.stages))}
    parts = expected if stage else {**expected, **stages_of(config)}
    before = {part: config.get(part) for part in parts}
    before |= {"model": trained, "data": to_json(data_settings(config, folder), folder)}
    named = [change.partition("=")[0] for change in changes]
    remarks = []
    for field, there, here in differences(before, expected):
        of_stage = field.partition(".")[0] in name_stages(recipe.stages)
        if not of_stage or any(f"{field}.".startswith(f"{key}.") for key in named):
            raise ConfigError(
                f"{folder} holds a run with other settings ({field} is {there} there, {here} here); name another "
                "folder with --out"
            )
        remarks.append(f"{field} {there} instead of {here}")
    return f"trained with {', '.join(remarks)}" if remarks else ""


def _read_config(folder: Path) -> RunConfig:
    return read_config(folder, "delete the folder to train the row again")


def _folders(row: PaperRow, table: PaperTable, options: TableOptions, out: Path) -> tuple[list[Path], int | None]:
    """Return the folders of a row's runs, and 1 where these are longer runs whose first stage is the row, else None."""
    prefix = "scenes." if options.scenes else ""
    seeds = [f"seed{seed}" for seed in range(max(options.seeds, row.members))]
    whole = [out / shared_recipe(str(row.recipe), "all", prefix)[0] / seed for seed in seeds]
    if table.stages == "first" and all((folder / STAGE_WEIGHTS.format(1)).exists() for folder in whole):
        return whole, 1
    name, stages = shared_recipe(str(row.recipe), table.stages, prefix)
    return [out / (f"{name}.first" if stages == "first" else name) / seed for seed in seeds], None


def process_environments(processes: int | None) -> list[dict[str, str]]:
    """Return the environment variables of each parallel process: a CUDA device each, or a share of the cores."""
    count = torch.cuda.device_count()
    if count > 1:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        devices = visible.split(",") if visible else [str(device) for device in range(count)]
        return [{"CUDA_VISIBLE_DEVICES": devices[index % count]} for index in range(processes or count)]
    if "OMP_NUM_THREADS" in os.environ:
        return [{}] * (processes or 1)
    return [{"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // (processes or 1)))}] * (processes or 1)


def print_estimate_of(arguments: Sequence[str]) -> None:
    """Print the estimate of a call of `legenda table`, measured by a process that leaves no device memory behind.

    Where measuring fails, its reason is on the standard error.
    """
    call = ["table", *arguments, "--estimate", "only", *plugin_options()]
    subprocess.Popen([sys.executable, "-m", "legenda.cli._parallel", *call], stdin=subprocess.PIPE).wait()


def _print_estimate(runs: Sequence[RowRun], processes: int) -> None:
    """Measure a few steps of each recipe whose runs remain, and print the hours of its runs and of all."""
    groups: dict[tuple[str, str], list[RowRun]] = {}
    for run in {run.name: run for run in runs}.values():
        if not run.is_trained():
            groups.setdefault((run.recipe.name, str(run.folders[0].parent)), []).append(run)
    opened: dict[str, Task] = {}
    total = 0.0
    for (name, _), group in groups.items():
        recipe = group[0].recipe
        data = repr(recipe.data)
        if data not in opened:
            opened = {data: TASKS.get(recipe.task)(recipe.data.open(lambda _: None))}
        with progress_bar(f"measuring {name}"):
            seconds = estimate_seconds(recipe.model, recipe.model_overrides, opened[data], recipe.stages)
        total += seconds * len(group)
        print(f"{name}: {_duration(seconds)}{f' x {len(group)} runs' if len(group) > 1 else ''}")
    print(f"{_duration(total)} in all, {_duration(total / processes)} with {processes} at once, without evaluations")


def _duration(seconds: float) -> str:
    return f"{seconds / 3600:.1f} hours" if seconds >= 3600 else f"{seconds / 60:.1f} minutes"


def _write_table(
    table: PaperTable, options: TableOptions, out: Path, runs: Sequence[RowRun], failed: Mapping[str, str]
) -> None:
    """Write the table as a page and as Markdown, and print it."""
    scores: dict[str, list[dict[str, float | None]]] = {}
    for row in runs:
        if (evaluated := row.scores()) is not None:
            scores.setdefault(row.key, []).append(evaluated)
    notes = {row.key: row.remark for row in runs if row.remark}
    notes |= {row.key: f"training failed: {failed[name]}" for row in runs for name in failed if row.uses(name)}
    split, search = table.split or options.split, options.search_of(table)
    result = score_table(table, scores, notes, split, search, scenes=options.scenes)
    page, text = out / f"{table.name}.html", out / f"{table.name}.md"
    write_text(text, markdown(result))
    write_score_page(result, page)
    console = create_console()
    console.print(terminal_table(result))
    remarks = [f"{row.label}: {row.note}" for row in result.rows if row.note]
    for line in (result.lead, *remarks, *result.notes):
        console.print(line, highlight=False, markup=False)
    for row in runs:
        if row.submission is not None and row.is_evaluated():
            print(f"{row.submission}: the files of {row.key} for the server")
    print(f"{page}: the table as a page; {text}: as Markdown")
