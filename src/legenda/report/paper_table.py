"""The table of `legenda table`: scores of runs next to those of a paper, and its form for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich import box
from rich.table import Table

from legenda.recipes.tables import PaperTable
from legenda.report.score_table import HERE, PAPER, Measured, ScoreRow, ScoreTable

Found = Mapping[str, float | None]


def score_table(
    table: PaperTable,
    found: Mapping[str, Sequence[Found]],
    notes: Mapping[str, str],
    split: str,
    beam_size: int,
    *,
    scenes: bool,
) -> ScoreTable:
    """Return the table of the paper with the measured scores.

    found: the scores of the seeds of each row by its key, in 0..1. notes: remarks on rows, by key.
    """
    # a metric of the scenes, which no table of a paper has
    metrics = (*table.metrics, *(["truth"] if scenes else []))
    rows = []
    for row in table.rows:
        seeds = found.get(row.key or "", [])
        here = tuple(Measured.of([100 * s for seed in seeds if (s := seed.get(m)) is not None]) for m in metrics)
        paper = (*row.scores, *([None] if scenes else []))
        rows.append(ScoreRow(row.label, paper, here if seeds else None, notes.get(row.key or "", "")))
    return ScoreTable(table.title, _lead(table, scenes), metrics, tuple(rows), _notes(table, found, split, beam_size))


def _lead(table: PaperTable, scenes: bool) -> str:
    if scenes:
        return (
            f"{table.source}. Lines “{PAPER}” have its scores on COCO, lines “{HERE}” those of small models on the "
            "embedded scenes: the two are not comparable, only the rows among themselves are."
        )
    return (
        f"{table.source}. Lines “{PAPER}” have its scores, lines “{HERE}” those of the rows trained with this package."
    )


def _notes(table: PaperTable, found: Mapping[str, Sequence[Found]], split: str, beam_size: int) -> tuple[str, ...]:
    notes = [f"All scores times 100; {HERE}: the {split} split by beam search, beam {beam_size}."]
    seeds = max(map(len, found.values()), default=0)
    if seeds > 1:
        notes.append(f"{HERE.capitalize()}: mean ± standard deviation over at most {seeds} seeds.")
    return (*notes, *([table.note] if table.note else []))


def terminal_table(table: ScoreTable) -> Table:
    """Return the table for a terminal, two lines for each row."""
    terminal = Table(title=table.title, box=box.SIMPLE_HEAD, title_justify="left")
    terminal.add_column("row")
    terminal.add_column("", no_wrap=True)
    for metric in table.metrics:
        terminal.add_column(metric, justify="right", no_wrap=True)
    for row in table.rows:
        for index, (source, scores) in enumerate(row.lines()):
            terminal.add_row("" if index else row.label, source, *scores, style="dim" if source == PAPER else None)
    return terminal
