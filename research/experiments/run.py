"""Run an experiment: train and evaluate every condition with every seed, and write numbers and pages.

python research/experiments/run.py                         # lists the experiments
python research/experiments/run.py geometry_kinds --pilot 3
python research/experiments/run.py geometry_kinds
python research/experiments/run.py --pages                 # from the numbers alone
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import tyro
from experiment import (
    ConditionRun,
    Experiment,
    check_rule,
    experiment_path,
    experiment_runs,
    get_experiment,
    list_experiments,
    required_seeds,
)
from filelock import FileLock, Timeout
from measures import SECONDS, collect
from page import RESULTS, check_design, differences, is_timed, write_pages

from legenda.cli.main import main as legenda
from legenda.data.scenes import SceneCounts
from legenda.errors import ConfigError, LegendaError
from legenda.io import read_json, write_json


@dataclass(frozen=True)
class Options:
    """Train and evaluate what remains of experiments, and write their numbers and pages.

    The runs are OUT/RECIPE-DIGEST/seed100 and so on, one after the other in this process; experiments share runs of one
    configuration. Called again, finished runs are used and an interrupted one is resumed. Two calls at once share the
    work. Without an experiment it lists all.
    """

    names: tyro.conf.Positional[tuple[str, ...]] = ()
    """Experiments such as geometry_kinds, or TOML files of your own."""
    out: Path = Path("runs") / "experiments"
    """The folder of the runs."""
    results: Path = RESULTS
    """The folder of the numbers and pages."""
    pilot: int | None = None
    """So many seeds, from 0, of the two conditions of the primary comparison, and what follows for the design; nothing
    is written to the results."""
    seeds: int | None = None
    """So many of the experiment's seeds in this call."""
    primary: bool = False
    """Only the conditions of the primary comparison."""
    minutes: float | None = None
    """No run is started after so many minutes."""
    pages: bool = False
    """Write the pages of all results again; nothing is trained."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what the options name."""
    options = tyro.cli(Options, args=arguments)
    deadline = time.monotonic() + 60 * options.minutes if options.minutes is not None else None
    if not options.names and not options.pages:
        for name in list_experiments():
            print(f"{name:<24}  {get_experiment(name).title}")
    for name in options.names:
        if options.pilot is not None:
            run_pilot(get_experiment(name), options)
        else:
            run_experiment(name, options, deadline)
    if options.pages or (options.names and options.pilot is None):
        for path in write_pages(options.results):
            print(path)


def run_pilot(experiment: Experiment, options: Options) -> None:
    """Run the two conditions of the primary comparison, and print what a design needs to know about them."""
    if options.pilot is None or options.pilot < 2:
        raise ConfigError(f"--pilot must be at least 2, not {options.pilot}")
    pair = experiment.primary.condition, experiment.primary.against
    runs = list(experiment_runs(experiment, options.out, range(options.pilot)))
    for run in runs:
        if run.condition.key in pair:
            run_condition(run)
    results = collect(experiment, runs)["conditions"]
    for key in pair:
        for seed, values in results[key]["seeds"].items():
            print(f"{key}, seed {seed}: {values}")
    values = list(differences(experiment, results, experiment.primary).values())
    seconds = []
    for key in pair:
        seeds = list(results[key]["seeds"].values())[1:]  # the first run of a process imports what it needs
        times = [seed["seconds"]["train"] for seed in seeds if is_timed(seed)]
        if not times:
            raise ConfigError(f"no run of {key} but the first was trained in one call; give another folder with --out")
        seconds.append(fmean(times))
    print(f"differences {values}, mean {fmean(values):.4g}")
    print(f"[pilot]\nseeds = {len(values)}\nsd = {stdev(values):.4g}\nseconds = [{seconds[0]:.1f}, {seconds[1]:.1f}]")
    needed = required_seeds(stdev(values), experiment.primary.relevant)
    print(
        f"# {needed} seeds for a difference of {experiment.primary.relevant}; time {seconds[0] / seconds[1]:.3f} to 1"
    )


def run_experiment(name: str, options: Options, deadline: float | None) -> None:
    """Run what is not finished, the primary comparison first, and write the numbers after each seed.

    Raise ConfigError for an experiment that breaks a rule, is not committed, or has changed without saying so.
    """
    experiment = get_experiment(name)
    check_rule(experiment)
    path = options.results / f"{experiment.name}.json"
    designs = record_design(experiment, experiment_path(name), path)
    seeds = range(experiment.first_seed, experiment.first_seed + experiment.seeds)
    runs = list(experiment_runs(experiment, options.out, seeds))
    primary = experiment.primary
    decisive = {primary.condition, primary.against, primary.equal_time}
    for first in (True,) if options.primary else (True, False):
        for seed in seeds[: options.seeds]:
            for run in runs:
                due = run.seed == seed and (run.condition.key in decisive) == first
                if due and (deadline is None or time.monotonic() < deadline):
                    run_condition(run)
            write_json(path, {"experiment": experiment.name, "designs": designs, **collect(experiment, runs)})


def record_design(experiment: Experiment, file: Path, path: Path) -> list[dict[str, str]]:
    """Return the designs of the runs so far, with the present one; raise ConfigError where a rule is broken."""
    status = subprocess.run(
        ["git", "status", "--porcelain", "--ignored", "--", file.name], cwd=file.parent, capture_output=True, text=True
    )
    if status.returncode or status.stdout.strip():
        raise ConfigError(f"{file} is not committed; commit it before its first run")
    designs = read_json(path)["designs"] if path.exists() else []
    check_design(experiment, designs)
    if not designs or designs[-1]["design"] != experiment.design:
        designs.append({"design": experiment.design, "date": datetime.now(UTC).date().isoformat()})
    return designs


def run_condition(run: ConditionRun) -> None:
    """Train and evaluate a run, unless that is done or another process is at it; keep its processor time.

    Raise LegendaError where it fails.
    """
    run.folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(run.folder.with_suffix(".lock"), timeout=0):
            path = run.folder / SECONDS
            seconds: dict[str, Any] = read_json(path) if path.exists() else {}
            resumed = run.folder.exists() and not path.exists()
            if commands := replace(run.run, train=tuple(run.train_command())).commands():
                draw_data(run.recipe.data)
            for command in commands:
                started = time.process_time()
                try:
                    legenda(command)
                except SystemExit as stop:
                    if stop.code:
                        raise LegendaError(f"{run.folder}: legenda {command[0]} failed; remove the cause") from None
                seconds[command[0]] = round(time.process_time() - started, 2)
                write_json(path, seconds | ({"resumed": True} if resumed else {}))
    except Timeout:
        return


def draw_data(data: Any) -> None:
    """Draw the scenes of a seed into their cache, so that no condition's training time includes it."""
    if isinstance(data, SceneCounts):
        for split in ("train", "val", "test"):
            data.generate(split)


if __name__ == "__main__":
    try:
        main()
    except LegendaError as error:
        print(f"run.py: {error}", file=sys.stderr)
        raise SystemExit(2) from None
