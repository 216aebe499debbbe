"""`legenda table`: train and evaluate the rows of a paper's table, and compare their scores with the paper's."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
import tyro

from legenda.cli._parallel import run_parallel
from legenda.cli.options import parse
from legenda.config import Config, Count, PositiveInt
from legenda.errors import ConfigError, LegendaError, did_you_mean
from legenda.evaluation.evaluate import RowRun, init_table_dir
from legenda.evaluation.runs import describe_data
from legenda.io import write_text
from legenda.papers import PaperRow, PaperTable, all_tables, get_recipe, get_table, shared_recipe
from legenda.recipes import Recipe, changes_first, parse_changes, stage_names
from legenda.registry import plugin_options
from legenda.report.tables import markdown, score_table, terminal_table, write_score_page
from legenda.run_folder import CONFIG, STAGE_WEIGHTS, read_config
from legenda.tasks.base import TASKS
from legenda.terminal import create_console, progress_bar
from legenda.training.launch import estimate_seconds

CONSOLE_WIDTH = 160
"""Columns of the printed table where the output is not a terminal."""


class TableOptions(Config):
    """Train and evaluate the rows of a paper's table, and print their scores with the paper's.

    The table comes first, then changes of the recipes of all rows, as legenda train takes them: legenda table
    ngsan.table2 data.annotations=dataset_coco.json data.features=coco.safetensors. The runs of a row are OUT/RECIPE/
    seed0 and so on; called again, or for another table with a row of the same configuration, finished runs are used and
    others are resumed. Rows that are ensembles train their members. Writes OUT/TABLE.md and OUT/TABLE.html, one page
    that opens offline.

    Without a table it lists all tables. A row that fails does not affect the others and is named at the end.
    """

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
    beam_size: Count = 3
    """Number of beams."""
    scenes: bool = False
    """Train small models on the embedded scenes instead of COCO: minutes for each row, and no downloads. The scores are
    not comparable with the paper's."""
    test_features: Path | None = None
    """The features of test2014, for tables that COCO's server scores; its files are written to OUT/TABLE/ROW."""
    estimate: Literal["first", "only", "none"] = "first"
    """Print the hours of the trainings that remain, measured in a few steps of each: before them, or without them."""

    @property
    def changes(self) -> tuple[str, ...]:
        """The changes of all recipes."""
        return self.arguments[1:]

    def check(self) -> None:
        """Raise ConfigError where the table is not first, or seeds are set twice."""
        if self.arguments and "=" in self.arguments[0]:
            raise ConfigError("the table comes first, as in legenda table ngsan.table2; legenda table lists them")
        if self.seeds > 1 and any(change.split("=")[0].endswith(".seed") for change in self.changes):
            raise ConfigError("--seeds sets the seed of every run; leave out training.seed and fine_tuning.seed")


@dataclass(frozen=True)
class Job:
    """The run of a row, or the ensemble of several, with the recipe and the arguments of `legenda train`.

    is_evaluated: whether the run has scores of its own; members of ensembles need none. test_features: of test2014,
    for COCO's server.
    """

    run: RowRun
    recipe: Recipe
    arguments: tuple[str, ...]
    is_evaluated: bool = True
    test_features: Path | None = None

    def commands(self) -> list[list[str]]:
        """Return the commands that remain."""
        train = ["train", self.run.recipe, *self.arguments, "--out", str(self.run.folders[0])]
        server = () if self.test_features is None else ("--test-features", str(self.test_features))
        return remaining_commands(self.run, train, server, is_evaluated=self.is_evaluated)


def remaining_commands(
    run: RowRun, train: Sequence[str], server: Sequence[str] = (), *, is_evaluated: bool = True
) -> list[list[str]]:
    """Return the command `train` unless the training is finished, and the evaluation of each split without scores.

    server: options of evaluations that write files for a server.
    """
    rest = ["--beam-size", str(run.beam_size)]
    if run.stage is not None:
        rest += ["--stage", str(run.stage)]
    if run.submission is not None:
        rest += ["--submission-dir", str(run.submission), "--algorithm", run.key, *server]
    elif run.task == "captioning":
        rest += ["--metrics", run.metrics]
    rest += plugin_options()
    evaluate = [["evaluate", *map(str, run.folders), "--split", split, *rest] for split in run.splits]
    needs_evaluation = is_evaluated and not run.is_evaluated()
    return [*([] if run.is_trained() else [[*train, *plugin_options()]]), *(evaluate if needs_evaluation else [])]


def run(arguments: Sequence[str]) -> None:
    """Train and evaluate what remains, and write and print the table."""
    options = parse(TableOptions, changes_first(arguments), "table")
    options.check()
    if not options.arguments:
        _list_tables()
        return
    table = get_table(options.arguments[0])
    out = options.out or Path("runs") / ("scenes.tables" if options.scenes else "tables")
    jobs, ensembles = make_jobs(table, options, out)
    environments = process_environments(options.processes)
    if options.estimate == "only":
        return _print_estimate(jobs, len(environments))
    init_table_dir(out, {"scenes": options.scenes, "options": list(options.changes)})
    if options.estimate == "first" and not all(job.run.is_trained() for job in jobs):
        print_estimate_of(arguments)
    failed: dict[str, str] = {}
    for group in (jobs, ensembles):
        work: dict[str, list[list[str]]] = {}
        for job in group:
            commands = job.commands()
            if len(commands) > len(work.get(job.run.name, [])) and not any(map(job.run.uses, failed)):
                work[job.run.name] = commands
        failed |= run_parallel(work, environments) if work else {}
    _write_table(table, options, out, [job.run for job in (*jobs, *ensembles) if job.is_evaluated], failed)
    if failed:
        reasons = "; ".join(f"{name} ({reason})" for name, reason in failed.items())
        raise LegendaError(f"{len(failed)} of {len(jobs)} trainings failed: {reasons}; remove the cause and call again")


def _list_tables() -> None:
    tables = all_tables()
    width = max(map(len, tables))
    for name, table in tables.items():
        print(f"{name:<{width}}  {table.title} ({table.source})")
    print("\nlegenda table NAME trains the rows of a table; with --scenes, small models on the embedded scenes.")


def make_jobs(table: PaperTable, options: TableOptions, out: Path) -> tuple[list[Job], list[Job]]:
    """Return the jobs of single runs, one for each row and seed and for each member, and those of the ensembles.

    Raise LegendaError for an unknown row, a wrong change or missing data.
    """
    of_server = table.is_of_server and not options.scenes
    rows = {row.key: row for row in table.rows if row.key is not None}
    for key in options.rows:
        if key not in rows:
            raise ConfigError(f"{table.name} has no row {key!r}; {did_you_mean(key, rows)}")
    jobs, ensembles = [], []
    splits = {name: f" on {name}" for _, _, name in (metric.partition(" on ") for metric in table.metrics) if name}
    for key, row in rows.items():
        if options.rows and key not in options.rows:
            continue
        name, stages = shared_recipe(str(row.recipe), table.stages, "scenes." if options.scenes else "")
        recipe = check_recipe(name, key, options.changes).select_stages(stages)
        if of_server and recipe.task == "captioning" and options.estimate != "only":
            _check_test_features(table, options.test_features)
        several = options.seeds > 1 or row.members > 1
        folders, stage = _folders(row, table, options, out)
        submission = out / table.name / key if of_server else None
        split = splits or {table.split or options.split: ""}
        metrics = "fast" if options.scenes else "auto"
        single = RowRun(key, name, recipe.task, (), split, options.beam_size, metrics, stage, submission)
        for folder in folders:
            _check_data(folder, recipe)
        for seed in range(max(options.seeds, row.members)):
            seeds = tuple(f"{stage}.seed={seed}" for stage in stage_names(recipe) if several)
            given = (*options.changes, *seeds, *(("--stages", "first") if stages == "first" else ()))
            one = replace(single, folders=(folders[seed],))
            jobs.append(Job(one, recipe, given, row.members == 1, options.test_features))
        if row.members > 1:  # the last member comes first, so that ensembles of other sizes have other files
            members = replace(single, folders=tuple(reversed(folders[: row.members])))
            ensembles.append(Job(members, recipe, (), test_features=options.test_features))
    return jobs, ensembles


def check_recipe(name: str, key: str, changes: Sequence[str]) -> Recipe:
    """Return the recipe of a row after checking its changes and its data."""
    try:
        recipe = get_recipe(name).override(parse_changes(changes))
    except LegendaError as error:
        raise ConfigError(f"row {key}: {error}") from error
    paths = {field: value for field, value in dict(recipe.data).items() if isinstance(value, Path)}
    for value in paths.values():
        if not value.exists():
            options = " and ".join(f"data.{field}=" for field in paths)
            scenes = ", or train on the embedded scenes with --scenes" if recipe.task == "captioning" else ""
            raise ConfigError(f"{value} does not exist; name the data with {options}{scenes}")
    return recipe


def _check_data(folder: Path, recipe: Recipe) -> None:
    """Raise ConfigError where the folder holds a run on other data than those of the recipe."""
    if (folder / CONFIG).exists():
        stored, own = read_config(folder, "delete the folder to train the row again").get("data"), recipe.data
        if stored != describe_data(own, folder):
            raise ConfigError(f"{folder} holds a run on other data than {own!r}; name another folder with --out")


def _check_test_features(table: PaperTable, path: Path | None) -> None:
    if path is None or not path.exists():
        missing = "" if path is None else f", but {path} does not exist"
        raise ConfigError(f"COCO's server scores {table.name}{missing}; name features of test2014 with --test-features")


def _folders(row: PaperRow, table: PaperTable, options: TableOptions, out: Path) -> tuple[list[Path], int | None]:
    """Return the folders of a row's runs, and 1 where they hold longer runs, the first stage of which is the row."""
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


def _print_estimate(jobs: Sequence[Job], processes: int) -> None:
    """Measure a few steps of each recipe whose runs remain, and print the hours of its runs and of all."""
    groups: dict[tuple[str, str], list[Job]] = {}
    for job in {job.run.name: job for job in jobs}.values():
        if not job.run.is_trained():
            groups.setdefault((job.run.recipe, str(job.run.folders[0].parent)), []).append(job)
    opened: dict[str, Any] = {}
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
    notes = {row.key: f"training failed: {failed[name]}" for row in runs for name in failed if row.uses(name)}
    result = score_table(table, scores, notes, table.split or options.split, options.beam_size, scenes=options.scenes)
    page, text = out / f"{table.name}.html", out / f"{table.name}.md"
    write_text(text, markdown(result))
    write_score_page(result, page)
    console = create_console()
    if not console.is_terminal:
        console.width = CONSOLE_WIDTH
    console.print(terminal_table(result))
    for line in (result.lead, *result.notes):
        console.print(line, highlight=False, markup=False)
    for row in runs:
        if row.submission is not None and row.is_evaluated():
            print(f"{row.submission}: the files of {row.key} for the server")
    print(f"{page}: the table as a page; {text}: as Markdown")
