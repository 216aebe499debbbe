"""Measured scores next to those that a paper reports, as Markdown, for a terminal, and as an offline HTML page."""

from __future__ import annotations

import html
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.table import Table

from legenda.io import write_text
from legenda.papers import PaperTable
from legenda.report.page import read_asset

PAPER, HERE = "paper", "here"
BLANK = "–"


@dataclass(frozen=True)
class Measured:
    """A score in percent: its mean over seeds, and their standard deviation where there are several."""

    mean: float
    spread: float | None = None

    @staticmethod
    def of(values: Sequence[float]) -> Measured | None:
        """Return mean and standard deviation over seeds; None without any."""
        if not values:
            return None
        return Measured(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None)

    def __str__(self) -> str:
        return f"{self.mean:.1f}" if self.spread is None else f"{self.mean:.1f} ± {self.spread:.1f}"


@dataclass(frozen=True)
class ScoreRow:
    """One system: the reported and the measured score of each metric, None where there is none.

    note: a remark, such as that its training failed.
    """

    label: str
    paper: tuple[float | None, ...]
    here: tuple[Measured | None, ...] | None
    note: str = ""

    def lines(self) -> list[tuple[str, list[str]]]:
        """Return the scores as text with their source: the paper's, and the measured ones if there are any."""
        reported = [BLANK if score is None else f"{score:.1f}" for score in self.paper]
        measured = [] if self.here is None else [(HERE, [BLANK if s is None else str(s) for s in self.here])]
        return [(PAPER, reported), *measured]


@dataclass(frozen=True)
class ScoreTable:
    """A table of a paper with measured scores; lead: an introduction; notes: remarks below the table."""

    title: str
    lead: str
    metrics: tuple[str, ...]
    rows: tuple[ScoreRow, ...]
    notes: tuple[str, ...] = ()


def markdown(table: ScoreTable) -> str:
    """Return the table as Markdown, two lines for each row."""
    head = ["", "", *table.metrics]
    lines = [
        f"# {table.title}",
        "",
        table.lead,
        "",
        _cells(head),
        _cells(["---", "---", *["---:"] * len(table.metrics)]),
    ]
    for row in table.rows:
        for index, (source, scores) in enumerate(row.lines()):
            lines.append(_cells(["" if index else row.label, source, *scores]))
    notes = [*(f"{row.label}: {row.note}" for row in table.rows if row.note), *table.notes]
    return "\n".join([*lines, "", *(f"- {note}" for note in notes)]) + "\n"


def _cells(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def write_score_page(table: ScoreTable, path: str | Path) -> None:
    """Write the table as one HTML file without scripts; raise an error when the file cannot be written."""
    escape = html.escape
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in ("row", "scores of", *table.metrics))
    bodies = []
    for row in table.rows:
        lines = row.lines()
        note = f'<span class="note">{escape(row.note)}</span>' if row.note else ""
        label = f'<th scope="rowgroup" rowspan="{len(lines)}">{escape(row.label)}{note}</th>'
        cells = (
            f'<tr class="{source}">{label if source == PAPER else ""}<td class="source">{source}</td>'
            + "".join(f"<td>{escape(score)}</td>" for score in scores)
            for source, scores in lines
        )
        bodies.append(f"<tbody>{'</tr>'.join(cells)}</tr></tbody>")
    styles = "\n".join(read_asset(name) for name in ("theme.css", "page.css", "score-table.css"))
    notes = "".join(f"<p>{escape(note)}</p>" for note in table.notes)
    page = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(table.title)}</title><style>{styles}</style></head>
<body><header class="page"><h1>{escape(table.title)}</h1><p class="lead">{escape(table.lead)}</p></header>
<main class="page"><section><div class="scroll" tabindex="0"><table><thead><tr>{head}</tr></thead>
{"".join(bodies)}</table></div></section></main><footer class="page">{notes}</footer></body></html>
"""
    write_text(path, page)


RowScores = Mapping[str, float | None]


def score_table(
    table: PaperTable,
    measured: Mapping[str, Sequence[RowScores]],
    notes: Mapping[str, str],
    split: str,
    beam_size: int,
    *,
    scenes: bool,
) -> ScoreTable:
    """Return the table of the paper with the measured scores.

    measured: the scores of the seeds of each row by its key, in 0..1. notes: remarks on rows, by key.
    """
    # a metric of the scenes, which no table of a paper has
    metrics = (*table.metrics, *(["truth"] if scenes else []))
    rows = []
    for row in table.rows:
        seeds = measured.get(row.key or "", [])
        here = tuple(Measured.of([100 * s for seed in seeds if (s := seed.get(m)) is not None]) for m in metrics)
        paper = (*row.scores, *([None] if scenes else []))
        rows.append(ScoreRow(row.label, paper, here if seeds else None, notes.get(row.key or "", "")))
    return ScoreTable(
        table.title, _lead(table, scenes), metrics, tuple(rows), _notes(table, measured, split, beam_size)
    )


def _lead(table: PaperTable, scenes: bool) -> str:
    if scenes:
        return (
            f"{table.source}. Lines “{PAPER}” have its scores on COCO, lines “{HERE}” those of small models on the "
            "embedded scenes: the two are not comparable, only the rows among themselves are."
        )
    return (
        f"{table.source}. Lines “{PAPER}” have its scores, lines “{HERE}” those of the rows trained with this package."
    )


def _notes(
    table: PaperTable, measured: Mapping[str, Sequence[RowScores]], split: str, beam_size: int
) -> tuple[str, ...]:
    notes = [f"All scores times 100; {HERE}: the {split} split by beam search, beam {beam_size}."]
    seeds = max(map(len, measured.values()), default=0)
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
