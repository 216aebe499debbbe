"""What `legenda table` shows: scores of runs beside those of a paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich import box
from rich.table import Table

from legenda.recipes.tables import PaperTable
from legenda.visualization.score_table import HERE, PAPER, Measured, ScoreRow, ScoreTable

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
    """The paper's table with what was found here.

    found: for each row by its key the scores of its seeds, where 1 is 100 %. notes: what is to be said of a row.
    """
    # scenes know what is true of them, which no table of a paper has
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
        f"{table.source}. Lines “{PAPER}” have its scores, lines “{HERE}” those of the rows trained with this program."
    )


def _notes(table: PaperTable, found: Mapping[str, Sequence[Found]], split: str, beam_size: int) -> tuple[str, ...]:
    said = [f"All scores times 100; {HERE}: the {split} split by beam search, beam {beam_size}."]
    most = max(map(len, found.values()), default=0)
    if most > 1:
        said.append(f"{HERE.capitalize()}: mean ± standard deviation over seeds, {most} at most.")
    return (*said, *([table.note] if table.note else []))


def terminal_table(table: ScoreTable) -> Table:
    """The table for a terminal, two lines a row."""
    drawn = Table(title=table.title, box=box.SIMPLE_HEAD, title_justify="left")
    drawn.add_column("row")
    drawn.add_column("", no_wrap=True)
    for metric in table.metrics:
        drawn.add_column(metric, justify="right", no_wrap=True)
    for row in table.rows:
        for place, (whose, scores) in enumerate(row.lines()):
            drawn.add_row("" if place else row.label, whose, *scores, style="dim" if whose == PAPER else None)
    return drawn
