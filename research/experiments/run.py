"""Run an experiment: train and evaluate every condition with every seed, and write numbers and pages.

python research/experiments/run.py                         # lists the experiments
python research/experiments/run.py coco_converged --pilot 6
python research/experiments/run.py coco_converged
python research/experiments/run.py --pages                 # from the numbers alone
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import tyro
from experiment import (
    FOLDER,
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
from measures import HINT, SECONDS, best_validation, collect, describe_machine, measured, read_results
from page import RESULTS, WHICH, check_design, is_timed, not_run, page_text, paired_values, read_all, table_page
from plots import draw_forest, draw_page
from which import which_page

from legenda.cli.main import main as legenda
from legenda.data.scenes import SceneCounts
from legenda.errors import ConfigError, LegendaError
from legenda.io import read_json, verified, write_json, write_text
from legenda.recipes import parse_changes


@dataclass(frozen=True)
class Options:
    """Train and evaluate what remains of experiments, and write their numbers and pages.

    The runs are OUT/RECIPE-DIGEST/seed100 and so on, one after the other in this process; experiments share runs of one
    configuration. Called again, it goes on: seeds with numbers are not run again, and an interrupted run is resumed.
    Two calls at once share the work. Without an experiment it lists all.
    """

    names: tyro.conf.Positional[tuple[str, ...]] = ()
    """Experiments such as coco_converged, or TOML files of your own."""
    out: Path = Path("runs") / "experiments"
    """The folder of the runs."""
    results: Path = RESULTS
    """The folder of the numbers and pages."""
    pilot: int | None = None
    """So many seeds, from 0, and what follows for the design. They are kept in the numbers, apart from those of the
    verdict."""
    change: tuple[str, ...] = ()
    """Changes of all conditions in a pilot, such as training.schedule.learning_rate=2e-3; only validation is scored."""
    conditions: tuple[str, ...] = ()
    """The conditions to run; of a pilot without one, those of the first primary comparison."""
    seeds: int | None = None
    """So many of the experiment's seeds in this call."""
    primary: bool = False
    """Only the conditions of the primary comparisons."""
    minutes: float | None = None
    """No run is started after so many minutes."""
    pages: bool = False
    """Write the pages of all results again; nothing is trained."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what the options name."""
    options = tyro.cli(Options, args=arguments)
    deadline = time.monotonic() + 60 * options.minutes if options.minutes is not None else None
    if options.change and options.pilot is None:
        raise ConfigError("--change is of pilots; add --pilot, or change the design before its first run")
    if not options.names and not options.pages:
        for name in list_experiments():
            print(f"{name:<24}  {get_experiment(name).title}")
    for name in options.names:
        get_experiment(name).check_conditions(options.conditions)
        if options.pilot is not None:
            run_pilot(get_experiment(name), options, deadline)
        else:
            run_experiment(name, options, deadline)
    if options.pages or options.names:
        for path in write_pages(options.results):
            print(path)


def write_pages(folder: Path = RESULTS) -> list[Path]:
    """Write the pages and figures of all results in a folder; "Which attention?" only for the published ones."""
    results = verified(lambda: read_all(folder), folder, HINT)
    everything = [results.get(name) or not_run(get_experiment(name)) for name in list_experiments()]
    shown = sorted((r for r in everything if not r.experiment.withdrawn), key=lambda r: r.experiment.page)
    pages = {}
    for name, group in groupby(shown, lambda r: r.experiment.page):
        parts = list(group)
        pages[folder / f"{name}.md"] = "\n".join(page_text(name, parts)) + "\n"
        pages[folder / f"{name}.svg"] = draw_page(parts)
    pages[folder / "README.md"] = "\n".join(table_page(everything)) + "\n"
    pages[folder / "forest.svg"] = draw_forest(shown)
    if folder.resolve() == RESULTS.resolve():
        pages[WHICH] = which_page(results)
    for path, text in pages.items():
        write_text(path, text)
    return list(pages)


def run_pilot(experiment: Experiment, options: Options, deadline: float | None) -> None:
    """Run seeds below those of the verdict, keep their numbers, and print what a design needs to know about them."""
    if options.pilot is None or options.pilot < 2:
        raise ConfigError(f"--pilot must be at least 2, not {options.pilot}")
    pair = experiment.primary.condition, experiment.primary.against
    keys = options.conditions or pair
    path = options.results / f"{experiment.name}.json"
    runs = list(experiment_runs(experiment, options.out, range(options.pilot), parse_changes(options.change)))
    called = range(options.pilot)[: options.seeds]
    for run in runs:
        if run.seed in called and run.condition.key in keys and (deadline is None or time.monotonic() < deadline):
            run_condition(run)
            keep_pilot(experiment, run, options.change, path)
    if options.change:
        return
    results = collect(experiment, runs, {})
    rows = paired_values(results, pair, experiment.metric_of(experiment.primary)).values()
    values = [first - second for first, second in rows]
    if len(values) < 2:
        return
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


def keep_pilot(experiment: Experiment, run: ConditionRun, changes: Sequence[str], path: Path) -> None:
    """Add the validation score of a pilot's run, and without changes its metrics, to the numbers of its experiment."""
    if not (run.folder / SECONDS).exists():
        return
    numbers = read_results(path) if path.exists() else {"experiment": experiment.name, "designs": [], "conditions": {}}
    kept = {"condition": run.condition.key, "seed": run.seed, "changes": list(changes), "design": experiment.design}
    others = [pilot for pilot in numbers.get("pilots", []) if any(pilot[key] != value for key, value in kept.items())]
    about = {"steps": run.steps, "validation": best_validation(run), "seconds": read_json(run.folder / SECONDS)}
    found = collect(experiment, [run], {}) if not changes else {}
    metrics = {key: value for key, value in measured(found, run).items() if key != "seconds"}
    print({**kept, **about, **metrics})
    write_json(path, {**numbers, "pilots": [*others, {**kept, **about, **metrics}]})


def run_experiment(name: str, options: Options, deadline: float | None) -> None:
    """Run what is not finished, the primary comparisons first, and write the numbers after each seed.

    Raise ConfigError for an experiment that breaks a rule, is not committed, or has changed without saying so, and for
    a changed tree.
    """
    experiment = get_experiment(name)
    check_rule(experiment)
    path = options.results / f"{experiment.name}.json"
    designs = record_design(experiment, experiment_path(name), path)
    numbers: dict[str, Any] = read_results(path) if path.exists() else {"experiment": experiment.name}
    seeds = range(experiment.first_seed, experiment.first_seed + experiment.seeds)
    runs = list(experiment_runs(experiment, options.out, seeds))
    decisive = {key for each in experiment.primaries for key in (each.condition, each.against, each.equal_time)}
    for first in (True,) if options.primary else (True, False):
        for seed in seeds[: options.seeds]:
            for run in runs:
                due = run.seed == seed and (run.condition.key in decisive) == first
                due = due and (not options.conditions or run.condition.key in options.conditions)
                due = due and not measured(numbers.get("conditions", {}), run)
                if due and (deadline is None or time.monotonic() < deadline):
                    check_tree()
                    run_condition(run)
            numbers |= {"designs": designs, "conditions": collect(experiment, runs, numbers.get("conditions", {}))}
            write_json(path, numbers)


def record_design(experiment: Experiment, file: Path, path: Path) -> list[dict[str, str]]:
    """Return the designs of the runs so far, with the present one; raise ConfigError where a rule is broken."""
    status = _git("status", "--porcelain", "--ignored", "--", file.name, cwd=file.parent)
    if status is None or status.strip():
        raise ConfigError(f"{file} is not committed; commit it before its first run")
    designs = read_results(path)["designs"] if path.exists() else []
    check_design(experiment, designs)
    if not designs or designs[-1]["design"] != experiment.design:
        designs.append({"design": experiment.design, "date": datetime.now(UTC).date().isoformat()})
    return designs


def check_tree() -> None:
    """Raise ConfigError where the code is not that of a commit; numbers and pages of earlier runs are no code."""
    if (changed := changed_files()) is None:
        raise ConfigError(f"{ROOT} is no git checkout; runs for a verdict name the commit of their code")
    if changed:
        raise ConfigError(f"the working tree differs from its commit in {changed[0]}; commit it before a run")


ROOT = FOLDER.parents[1]


def changed_files() -> list[str] | None:
    """Return the files that differ from the commit, new ones of src and research too; None outside of a checkout."""
    outputs = [f":(exclude){path.relative_to(ROOT).as_posix()}" for path in (RESULTS, WHICH)]
    tracked = _git("status", "--porcelain", "--untracked-files=no", "--", ".", *outputs, cwd=ROOT)
    new = _git("ls-files", "--others", "--exclude-standard", "--", "src", "research", *outputs, cwd=ROOT)
    if tracked is None or new is None:
        return None
    return [*(line[3:] for line in tracked.splitlines()), *new.splitlines()]


def code_commit() -> str:
    """Return the commit of the code, with "-dirty" where files differ from it."""
    commit = _git("rev-parse", "HEAD", cwd=ROOT)
    return "unknown" if commit is None else commit.strip() + ("-dirty" if changed_files() else "")


def _git(*arguments: str, cwd: Path) -> str | None:
    """Return the output of a git command; None where it fails."""
    done = subprocess.run(["git", "--no-optional-locks", *arguments], cwd=cwd, capture_output=True, text=True)
    return None if done.returncode else done.stdout


def run_condition(run: ConditionRun) -> None:
    """Train and evaluate a run, unless that is done or another process is at it; keep its times, commit and machine.

    Raise LegendaError where it fails.
    """
    run.folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(run.folder.with_suffix(".lock"), timeout=0):
            path = run.folder / SECONDS
            seconds: dict[str, Any] = read_json(path) if path.exists() else {}
            resumed = run.folder.exists() and not path.exists()
            commit = code_commit()
            if commands := replace(run.run, train=tuple(run.train_command())).commands():
                draw_data(run.recipe.data)
            for command in commands:
                started = time.process_time()
                try:
                    legenda(command)
                except SystemExit as stop:
                    if stop.code == 2:
                        raise LegendaError(f"{run.folder}: legenda {command[0]} failed; remove the cause") from None
                    if stop.code:  # stopped by a signal
                        raise
                seconds[command[0]] = round(time.process_time() - started, 2)
                about = {"commit": commit, "machine": describe_machine()}
                seconds = about | seconds | ({"resumed": True} if resumed else {})
                write_json(path, seconds)
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
