"""Test a claim of a paper on drawn scenes, with seeds and intervals.

python research/claims/run.py                      # lists the claims
python research/claims/run.py relations
python research/claims/run.py relations --arms san gsan --seeds 3 --processes 2 --out runs/quick
python research/claims/run.py --page research/claims/results/relations.json
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import tyro
from claim import Claim, claim_runs, get_claim, list_claims
from measures import CORE_HOURS, CoreHours, collect
from page import write_page

from legenda.cli._parallel import run_parallel
from legenda.cli.table import process_environments, remaining_commands
from legenda.errors import ConfigError, LegendaError
from legenda.io import locked, write_json


@dataclass(frozen=True)
class Options:
    """Train the models of a claim with several seeds, and write its numbers, page and figure.

    The runs are OUT/RECIPE-DIGEST/seed0 and so on; called again, finished runs are used and others are resumed, and
    claims share runs of one configuration. Writes OUT/NAME.json, OUT/NAME.md and OUT/NAME.svg. Without a claim it
    lists all claims.
    """

    name: tyro.conf.Positional[str | None] = None
    """A claim such as relations, or a TOML file with one of your own."""
    out: Path = Path("runs") / "claims"
    """The folder of the runs and of the results."""
    arms: tuple[str, ...] = ()
    """Models to train, by their keys in the claim; by default all. A verdict takes all."""
    seeds: int = 5
    """Seeds of each model; fewer than 5 give no verdict."""
    steps: int | None = None
    """Training steps of each run, by default those of the claim; they are rounded to whole epochs."""
    processes: int = 1
    """Runs trained at once."""
    page: Path | None = None
    """A JSON file with results, whose page and figure are written next to it again; nothing is trained."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Train and evaluate what remains, and write the results; or write the page of results again."""
    options = tyro.cli(Options, args=arguments)
    if options.page is not None:
        print(f"{write_page(options.page)}: the page of {options.page}")
    elif options.name is None:
        for name in list_claims():
            print(f"{name:<24}  {get_claim(name).title}")
    else:
        run_claim(options.name, options)


def run_claim(name: str, options: Options) -> None:
    """Train and evaluate the runs of a claim that are not finished, and write its numbers and page."""
    for option in ("seeds", "steps", "processes"):
        if (value := getattr(options, option)) is not None and value < 1:
            raise ConfigError(f"--{option} must be at least 1, not {value}")
    claim = get_claim(name)
    claim.check_arms(options.arms)
    path = options.out / f"{Path(name).stem}.json"
    with ExitStack() as locks:
        for file in (options.out / CORE_HOURS, path, path.with_suffix(".md"), path.with_suffix(".svg")):
            locks.enter_context(locked(file))  # which removes what a killed call has left
        _run_claim(name, claim, path, options)


def _run_claim(name: str, claim: Claim, path: Path, options: Options) -> None:
    runs = list(claim_runs(claim, options.out, options.seeds, options.steps))
    needed = [job for job in runs if job.arm.key in (options.arms or claim.arms)]
    commands = {job.run.name: remaining_commands(job.run, job.train_command()) for job in needed}
    work = {run: remaining for run, remaining in commands.items() if remaining}
    hours = CoreHours(options.out, name)
    try:
        failed = run_parallel(work, process_environments(options.processes), hours.count) if work else {}
    finally:
        total = hours.count()
    write_json(path, collect(claim, runs, total, options.steps))
    print(f"{write_page(path)}: the page; {path}: its numbers")
    if failed:
        reasons = "; ".join(f"{run} ({reason})" for run, reason in failed.items())
        raise LegendaError(f"{len(failed)} of {len(runs)} runs failed: {reasons}; remove the cause and call again")


if __name__ == "__main__":
    try:
        main()
    except LegendaError as error:
        print(f"run.py: {error}", file=sys.stderr)
        raise SystemExit(2) from None
