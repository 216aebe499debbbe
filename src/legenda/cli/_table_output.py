"""The output of `legenda table`: a page, Markdown and the terminal."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from legenda.cli._table_options import TableOptions
from legenda.evaluation.results import RowRun
from legenda.io import write_text
from legenda.recipes.tables import PaperTable
from legenda.report.tables import markdown, score_table, terminal_table, write_score_page
from legenda.terminal import create_console

CONSOLE_WIDTH = 160
"""Columns of the printed table where the output is not a terminal."""


def write_table(
    table: PaperTable, options: TableOptions, out: Path, runs: Sequence[RowRun], failed: Mapping[str, str]
) -> None:
    """Write the table as a page and as Markdown, and print it."""
    scores: dict[str, list[dict[str, float | None]]] = {}
    for row in runs:
        if (found := row.scores()) is not None:
            scores.setdefault(row.key, []).append(found)
    notes = {row.key: f"training failed: {failed[name]}" for row in runs for name in failed if row.uses(name)}
    result = score_table(table, scores, notes, table.split or options.split, options.beam_size, scenes=options.scenes)
    page, text = out / f"{table.name}.html", out / f"{table.name}.md"
    write_text(text, markdown(result))
    write_score_page(result, page)
    console = create_console()
    if not console.is_terminal:
        console.width = CONSOLE_WIDTH
    console.print(terminal_table(result))
    for line in (result.lead, *result.notes):
        console.print(line, highlight=False, markup=False)
    for run in runs:
        if run.submission is not None and run.is_evaluated():
            print(f"{run.submission}: the files of {run.key} for the server")
    print(f"{page}: the table as a page; {text}: as Markdown")
