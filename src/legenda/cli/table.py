"""`legenda table`: train and evaluate the rows of a paper's table, and compare their scores with the paper's."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from legenda.cli._table_options import TableOptions, parse_table
from legenda.errors import LegendaError
from legenda.io import write_text

if TYPE_CHECKING:
    from legenda.evaluation.row_runs import RowRun
    from legenda.recipes.tables import PaperTable

CONSOLE_WIDTH = 160
"""Columns of the printed table where the output is not a terminal."""


def run(arguments: Sequence[str]) -> None:
    """Train and evaluate what remains, and write and print the table."""
    options, row_options = parse_table(arguments)
    if options.name is None:
        _list_tables()
        return
    from legenda.cli._parallel import run_parallel
    from legenda.cli._table_jobs import make_jobs, process_environments
    from legenda.evaluation.row_runs import init_table_dir
    from legenda.recipes.tables import get_table

    table = get_table(options.name)
    out = options.out or Path("runs") / (f"scenes.{table.name}" if options.scenes else table.name)
    jobs = make_jobs(table, options, out, row_options)
    settings = {"table": table.name, "scenes": options.scenes, "several seeds": options.seeds > 1}
    init_table_dir(out, {**settings, "options": row_options})
    work = {job.run.name: job.commands() for job in jobs if job.run.scores() is None}
    failed = run_parallel(work, process_environments(options.processes)) if work else {}
    _write_table(table, options, out, [job.run for job in jobs], failed)
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


def _write_table(
    table: "PaperTable", options: TableOptions, out: Path, runs: Sequence["RowRun"], failed: Mapping[str, str]
) -> None:
    """Write the table as a page and as Markdown, and print it."""
    from rich.console import Console

    from legenda.visualization.paper_table import score_table, terminal_table
    from legenda.visualization.score_table import markdown, write_score_page

    scores: dict[str, list[dict[str, float | None]]] = {}
    for row in runs:
        if (found := row.scores()) is not None:
            scores.setdefault(row.key, []).append(found)
    notes = {row.key: f"training failed: {failed[row.name]}" for row in runs if row.name in failed}
    result = score_table(table, scores, notes, options.split, options.beam_size, scenes=options.scenes)
    write_text(out / "table.md", markdown(result))
    write_score_page(result, out / "table.html")
    console = Console()
    if not console.is_terminal:
        console.width = CONSOLE_WIDTH
    console.print(terminal_table(result))
    for text in (result.lead, *result.notes):
        console.print(text, highlight=False, markup=False)
    print(f"{out / 'table.html'}: the table as a page; {out / 'table.md'}: as Markdown")
