"""The hours that the trainings of a table take."""

from collections.abc import Sequence
from typing import Any

from legenda.cli._table_jobs import TableJob
from legenda.cli._train_options import parse_train
from legenda.cli.progress import progress_bar
from legenda.recipes import get_recipe
from legenda.tasks.registry import TASKS
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


def _duration(hours: float) -> str:
    return f"{hours:.1f} hours" if hours >= 1 else f"{60 * hours:.1f} minutes"
