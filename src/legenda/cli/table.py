"""`legenda table`: train and evaluate the rows of a paper's table, and compare their scores with the paper's."""

from collections.abc import Sequence
from pathlib import Path

from legenda.cli._table_options import parse_table
from legenda.errors import LegendaError


def run(arguments: Sequence[str]) -> None:
    """Train and evaluate what remains, and write and print the table."""
    options, row_options = parse_table(arguments)
    if options.name is None:
        _list_tables()
        return
    from legenda.cli import _table_estimate
    from legenda.cli._parallel import run_parallel
    from legenda.cli._table_jobs import make_jobs
    from legenda.cli._table_output import write_table
    from legenda.cli._table_processes import process_environments
    from legenda.evaluation.results import init_table_dir
    from legenda.recipes.tables import get_table

    table = get_table(options.name)
    out = options.out or Path("runs") / ("scenes.tables" if options.scenes else "tables")
    jobs, ensembles = make_jobs(table, options, out, row_options)
    environments = process_environments(options.processes)
    if options.estimate == "only":
        return _table_estimate.print_estimate(jobs, len(environments))
    init_table_dir(out, {"scenes": options.scenes, "options": row_options})
    if options.estimate == "first" and not all(job.run.is_trained() for job in jobs):
        _table_estimate.print_estimate_of(arguments)
    failed: dict[str, str] = {}
    for group in (jobs, ensembles):
        work: dict[str, list[list[str]]] = {}
        for job in group:
            commands = job.commands()
            if len(commands) > len(work.get(job.run.name, [])) and not any(map(job.run.uses, failed)):
                work[job.run.name] = commands
        failed |= run_parallel(work, environments) if work else {}
    write_table(table, options, out, [job.run for job in (*jobs, *ensembles) if job.is_evaluated], failed)
    if failed:
        reasons = "; ".join(f"{name} ({reason})" for name, reason in failed.items())
        raise LegendaError(f"{len(failed)} of {len(jobs)} trainings failed: {reasons}; remove the cause and call again")


def _list_tables() -> None:
    from legenda.recipes.tables import all_tables

    tables = all_tables()
    width = max(map(len, tables))
    for name, table in tables.items():
        print(f"{name:<{width}}  {table.title} ({table.source})")
    print("\nlegenda table NAME trains the rows of a table; with --scenes, small models on the embedded scenes.")
