"""The hours that the trainings of a table take."""

import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from legenda.cli._table_job import TableJob
from legenda.cli._train_options import parse_train
from legenda.plugins import plugin_options
from legenda.recipes import get_recipe
from legenda.tasks.registry import TASKS
from legenda.terminal import progress_bar
from legenda.training.estimate import estimate_seconds


def print_estimate(jobs: Sequence[TableJob], processes: int) -> None:
    """Measure a few steps of each recipe whose runs remain, and print the hours of its runs and of all."""
    groups: dict[tuple[str, ...], list[TableJob]] = {}
    for job in {job.run.name: job for job in jobs}.values():
        if not job.run.is_trained():
            groups.setdefault((job.run.recipe, str(job.run.folders[0].parent)), []).append(job)
    opened: dict[str, Any] = {}
    hours = 0.0
    for (name, _), group in groups.items():
        recipe = parse_train(get_recipe(name), group[0].options).recipe
        if repr(recipe.data) not in opened:
            opened = {repr(recipe.data): TASKS.get(recipe.task)(recipe.data.open(lambda _: None))}
        with progress_bar(f"measuring {name}"):
            one = (
                estimate_seconds(recipe.model, recipe.model_overrides, opened[repr(recipe.data)], recipe.stages) / 3600
            )
        hours += one * len(group)
        print(f"{name}: {_duration(one)}{f' x {len(group)} runs' if len(group) > 1 else ''}")
    print(f"{_duration(hours)} in all, {_duration(hours / processes)} with {processes} at once, without evaluations")


def print_estimate_of(arguments: Sequence[str]) -> None:
    """Print the estimate of a call of `legenda table`, measured by a process that leaves no device memory behind.

    Where measuring fails, its reason is on the standard error.
    """
    call = ["table", *arguments, "--estimate", "only", *plugin_options()]
    subprocess.Popen([sys.executable, "-m", "legenda.cli._parallel", *call], stdin=subprocess.PIPE).wait()


def _duration(hours: float) -> str:
    return f"{hours:.1f} hours" if hours >= 1 else f"{60 * hours:.1f} minutes"
