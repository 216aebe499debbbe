"""The trainings and evaluations of `legenda table` as commands for parallel processes."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from legenda.cli._table_options import TableOptions
from legenda.cli._train_options import parse_train
from legenda.errors import ConfigError, LegendaError, did_you_mean
from legenda.evaluation.row_runs import RowRun
from legenda.plugins import plugin_options
from legenda.recipes import get_recipe
from legenda.recipes.overrides import stage_names
from legenda.recipes.tables import PaperTable


@dataclass(frozen=True)
class TableJob:
    """The run of a row and its options of `legenda train`."""

    run: RowRun
    options: tuple[str, ...]

    def commands(self) -> list[list[str]]:
        """Return the commands that remain: training, unless it is finished, and evaluation."""
        run, folder = self.run, str(self.run.folder)
        train = ["train", run.recipe, "--out", folder, *self.options, *plugin_options()]
        search = ["--split", run.split, "--beam-size", str(run.beam_size)]
        evaluate = ["evaluate", folder, *search, "--metrics", run.metrics, *plugin_options()]
        return [evaluate] if run.is_trained() else [train, evaluate]


def make_jobs(table: PaperTable, options: TableOptions, out: Path, row_options: Sequence[str]) -> list[TableJob]:
    """Return a job for every row and seed; raise LegendaError for an unknown row, a wrong option or missing data."""
    rows = {row.key: row for row in table.rows if row.key is not None}
    for key in options.rows:
        if key not in rows:
            raise ConfigError(f"{table.name} has no row {key!r}; {did_you_mean(key, rows)}")
    jobs = []
    for key, row in rows.items():
        if options.rows and key not in options.rows:
            continue
        recipe = f"scenes.{row.recipe}" if options.scenes else str(row.recipe)
        stages = _check_recipe(recipe, key, row_options)
        for seed in range(options.seeds):
            name = f"{key}/seed{seed}" if options.seeds > 1 else key
            seeds = [part for stage in stages for part in (f"--{stage}.seed", str(seed))] if options.seeds > 1 else []
            run = RowRun(key, name, recipe, out / name, options.split, options.beam_size, options.metrics)
            jobs.append(TableJob(run, (*row_options, *seeds)))
    return jobs


def _check_recipe(name: str, key: str, row_options: Sequence[str]) -> list[str]:
    """Return the option names of the stages of a row's recipe, after checking its options and its data."""
    try:
        recipe = parse_train(get_recipe(name), row_options).recipe
    except LegendaError as error:
        raise ConfigError(f"row {key}: {error}") from error
    for value in vars(recipe.data).values():
        if isinstance(value, Path) and not value.exists():
            raise ConfigError(
                f"{value} does not exist; name the data with --data.annotations and --data.features, or train on the "
                "embedded scenes with --scenes"
            )
    return [stage.replace("_", "-") for stage in stage_names(recipe)]


def process_environments(processes: int | None) -> list[dict[str, str]]:
    """Return the environment variables of each parallel process: a CUDA device each, or a share of the cores."""
    import torch

    count = torch.cuda.device_count()
    if count > 1:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        devices = visible.split(",") if visible else [str(device) for device in range(count)]
        return [{"CUDA_VISIBLE_DEVICES": devices[index % count]} for index in range(processes or count)]
    if "OMP_NUM_THREADS" in os.environ:
        return [{}] * (processes or 1)
    return [{"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // (processes or 1)))}] * (processes or 1)
