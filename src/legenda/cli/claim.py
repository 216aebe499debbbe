"""`legenda claim`: test a claim of a paper on scenes, with seeds and intervals."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import tyro

from legenda.cli.options import parse
from legenda.config import Bounded, Count, PositiveInt
from legenda.errors import LegendaError


@dataclass(frozen=True)
class ClaimOptions(Bounded):
    """Train the models of a claim with several seeds, and write its numbers, page and figure.

    The claim comes first: legenda claim relations. The runs are OUT/RECIPE-DIGEST/seed0 and so on; called again,
    finished runs are used and others are resumed, and claims share runs of one configuration. Writes OUT/NAME.json,
    OUT/NAME.md and OUT/NAME.svg. Without a claim it lists all claims.
    """

    section: ClassVar[str] = "--"

    name: tyro.conf.Positional[str | None] = None
    """A claim such as relations, or a TOML file with one of your own."""
    out: Path = Path("runs") / "claims"
    """The folder of the runs and of the results."""
    arms: tuple[str, ...] = ()
    """Models to train, by their keys in the claim; by default all. A verdict takes all."""
    seeds: Count = 5
    """Seeds of each model; fewer than 5 give no verdict."""
    steps: PositiveInt | None = None
    """Training steps of each run, by default those of the claim; they are rounded to whole epochs."""
    processes: PositiveInt = 1
    """Runs trained at once."""
    page: Path | None = None
    """A JSON file with results, whose page and figure are written next to it again; nothing is trained."""


def run(arguments: Sequence[str]) -> None:
    """Train and evaluate what remains, and write the results; or write the page of results again."""
    options = parse(ClaimOptions, arguments, "claim")
    from legenda.claims import get_claim, list_claims, write_page

    if options.page is not None:
        print(f"{write_page(options.page)}: the page of {options.page}")
    elif options.name is None:
        for name in list_claims():
            print(f"{name:<24}  {get_claim(name).title}")
    else:
        _run_claim(options.name, options)


def _run_claim(name: str, options: ClaimOptions) -> None:
    from legenda.claims import claim_runs, collect, get_claim, write_page
    from legenda.claims.results import CoreHours
    from legenda.cli._parallel import run_parallel
    from legenda.cli._table_job import remaining_commands
    from legenda.cli._table_processes import process_environments
    from legenda.io import write_json

    claim = get_claim(name)
    claim.check_arms(options.arms)
    runs = list(claim_runs(claim, options.out, options.seeds, options.steps))
    needed = [job for job in runs if job.arm.key in (options.arms or claim.arms)]
    work = {job.run.name: found for job in needed if (found := remaining_commands(job.run, job.train_command()))}
    path = options.out / f"{Path(name).stem}.json"
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
