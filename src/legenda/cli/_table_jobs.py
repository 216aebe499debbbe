"""The trainings and evaluations of `legenda table` as commands for parallel processes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from legenda.cli._table_options import TableOptions
from legenda.cli._table_recipes import check_recipe
from legenda.errors import ConfigError, did_you_mean
from legenda.evaluation.row_runs import RowRun
from legenda.plugins import plugin_options
from legenda.recipes.overrides import select_stages, stage_names
from legenda.recipes.tables import PaperTable
from legenda.recipes.tables.shared import shared_recipe


@dataclass(frozen=True)
class TableJob:
    """The run of a row, or the ensemble of several, and the options of `legenda train`.

    is_evaluated: whether the run has scores of its own; members of ensembles need none.
    """

    run: RowRun
    options: tuple[str, ...]
    is_evaluated: bool = True

    def commands(self) -> list[list[str]]:
        """Return the commands that remain."""
        train = ["train", self.run.recipe, "--out", str(self.run.folders[0]), *self.options]
        return remaining_commands(self.run, train, is_evaluated=self.is_evaluated)


def remaining_commands(run: RowRun, train: Sequence[str], *, is_evaluated: bool = True) -> list[list[str]]:
    """Return the command `train` unless the training is finished, and the evaluation of each split without scores."""
    metrics = ["--metrics", run.metrics] if run.task == "captioning" else []
    rest = ["--beam-size", str(run.beam_size), *metrics, *plugin_options()]
    evaluate = [["evaluate", *map(str, run.folders), "--split", split, *rest] for split in run.splits]
    needs_scores = is_evaluated and run.scores() is None
    return [*([] if run.is_trained() else [[*train, *plugin_options()]]), *(evaluate if needs_scores else [])]


def make_jobs(
    table: PaperTable, options: TableOptions, out: Path, row_options: Sequence[str]
) -> tuple[list[TableJob], list[TableJob]]:
    """Return the jobs of single runs, one for each row and seed and for each member, and those of the ensembles.

    Raise LegendaError for an unknown row, a wrong option or missing data.
    """
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
        several = options.seeds > 1 or row.members > 1
        folder = out / (f"{name}.first" if stages == "first" else name)
        single = RowRun(key, name, recipe.task, (), splits or {table.split or options.split: ""}, *options.search)
        stage_options = ("--stages", "first") if stages == "first" else ()
        seeds = range(max(options.seeds, row.members))
        folders = [folder / f"seed{seed}" for seed in seeds]
        for seed in seeds:
            names = stage_names(select_stages(recipe, stages))
            given = [part for n in names for part in (f"--{n.replace('_', '-')}.seed", str(seed)) if several]
            run = replace(single, folders=(folders[seed],))
            jobs.append(TableJob(run, (*stage_options, *row_options, *given), row.members == 1))
        if row.members > 1:  # the last member comes first, so that ensembles of other sizes have other files
            run = replace(single, folders=tuple(reversed(folders[: row.members])))
            ensembles.append(TableJob(run, ()))
    return jobs, ensembles
