"""The trainings and evaluations of the rows of `legenda table`."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from legenda.cli._table_job import TableJob
from legenda.cli._table_options import TableOptions
from legenda.cli._table_recipes import check_recipe
from legenda.errors import ConfigError, did_you_mean
from legenda.evaluation.results import RowRun
from legenda.recipes.overrides import select_stages, stage_names
from legenda.recipes.tables import PaperRow, PaperTable
from legenda.recipes.tables.shared import shared_recipe
from legenda.run_files import STAGE_WEIGHTS


def make_jobs(
    table: PaperTable, options: TableOptions, out: Path, row_options: Sequence[str]
) -> tuple[list[TableJob], list[TableJob]]:
    """Return the jobs of single runs, one for each row and seed and for each member, and those of the ensembles.

    Raise LegendaError for an unknown row, a wrong option or missing data.
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
        recipe = check_recipe(name, key, row_options)
        if of_server and recipe.task == "captioning" and options.estimate != "only":
            _check_test_features(table, options.test_features)
        several = options.seeds > 1 or row.members > 1
        seeds = range(max(options.seeds, row.members))
        folders, stage = _folders(row, table, options, out)
        submission = out / table.name / key if of_server else None
        split = splits or {table.split or options.split: ""}
        single = RowRun(key, name, recipe.task, (), split, *options.search, stage, submission)
        stage_options = ("--stages", "first") if stages == "first" else ()
        for seed in seeds:
            names = stage_names(select_stages(recipe, stages))
            given = [part for n in names for part in (f"--{n.replace('_', '-')}.seed", str(seed)) if several]
            run = replace(single, folders=(folders[seed],))
            train_options = (*stage_options, *row_options, *given)
            jobs.append(TableJob(run, train_options, row.members == 1, options.test_features))
        if row.members > 1:  # the last member comes first, so that ensembles of other sizes have other files
            run = replace(single, folders=tuple(reversed(folders[: row.members])))
            ensembles.append(TableJob(run, (), test_features=options.test_features))
    return jobs, ensembles


def _check_test_features(table: PaperTable, path: Path | None) -> None:
    if path is None or not path.exists():
        found = "" if path is None else f", but {path} does not exist"
        raise ConfigError(f"COCO's server scores {table.name}{found}; name features of test2014 with --test-features")


def _folders(row: PaperRow, table: PaperTable, options: TableOptions, out: Path) -> tuple[list[Path], int | None]:
    """Return the folders of a row's runs, and 1 where they hold longer runs, the first stage of which is the row."""
    prefix = "scenes." if options.scenes else ""
    seeds = [f"seed{seed}" for seed in range(max(options.seeds, row.members))]
    whole = [out / shared_recipe(str(row.recipe), "all", prefix)[0] / seed for seed in seeds]
    if table.stages == "first" and all((folder / STAGE_WEIGHTS.format(1)).exists() for folder in whole):
        return whole, 1
    name, stages = shared_recipe(str(row.recipe), table.stages, prefix)
    return [out / (f"{name}.first" if stages == "first" else name) / seed for seed in seeds], None
