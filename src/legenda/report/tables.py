"""Measured scores next to those that a paper reports, as Markdown, for a terminal, and as an offline HTML page."""

from __future__ import annotations

import html
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.table import Table

from legenda.io import write_text
from legenda.papers import PaperTable
from legenda.report.page import read_asset
from legenda.runtime.settings import GenerationConfig, Overrides

PAPER, HERE = "paper", "here"
_BLANK = "–"


@dataclass(frozen=True)
class ScoreRow:
    """One system: its scores as text by their source, those of the paper and then the measured ones if there are any.

    note: a remark, such as that its training failed.
    """

    label: str
    scores: Mapping[str, Sequence[str]]
    note: str = ""


@dataclass(frozen=True)
class ScoreTable:
    """A table of a paper with measured scores; lead: an introduction; notes: remarks below the table."""

    title: str
    lead: str
    metrics: tuple[str, ...]
    rows: tuple[ScoreRow, ...]
    notes: tuple[str, ...] = ()

    def lines(self) -> Iterator[list[str]]:
        """Yield the cells of each line: the label in the first line of a row, the source of the scores, the scores."""
        for row in self.rows:
            for index, (source, scores) in enumerate(row.scores.items()):
                yield ["" if index else row.label, source, *scores]


def markdown(table: ScoreTable) -> str:
    """Return the table as Markdown, two lines for each row."""
    alignment = ["---", "---", *["---:"] * len(table.metrics)]
    lines = [["", "", *table.metrics], alignment, *table.lines()]
    cells = ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]
    notes = [*(f"{row.label}: {row.note}" for row in table.rows if row.note), *table.notes]
    return "\n".join([f"# {table.title}", "", table.lead, "", *cells, "", *(f"- {note}" for note in notes)]) + "\n"


def write_score_page(table: ScoreTable, path: str | Path) -> None:
    """Write the table as one HTML file without scripts; raise an error when the file cannot be written."""
    escape = html.escape
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in ("row", "scores of", *table.metrics))
    bodies = []
    for row in table.rows:
        note = f'<span class="note">{escape(row.note)}</span>' if row.note else ""
        label = f'<th scope="rowgroup" rowspan="{len(row.scores)}">{escape(row.label)}{note}</th>'
        cells = (
            f'<tr class="{source}">{label if source == PAPER else ""}<td class="source">{source}</td>'
            + "".join(f"<td>{escape(score)}</td>" for score in scores)
            for source, scores in row.scores.items()
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
    search: Overrides,
    *,
    scenes: bool,
) -> ScoreTable:
    """Return the table of the paper with the measured scores.

    measured: the scores of the seeds of each row by its key, in 0..1. notes: remarks on rows, by key. search: what is
    set over the models' generation_config.
    """
    metrics = (*table.metrics, *(["truth"] if scenes else []))  # a metric of the scenes, which no paper has
    rows = []
    for row in table.rows:
        reported = [_BLANK if score is None else f"{score:.1f}" for score in row.scores]
        scores = {PAPER: [*reported, *([_BLANK] if scenes else [])]}
        if seeds := measured.get(row.key or "", []):
            scores[HERE] = [_format([100 * s for seed in seeds if (s := seed.get(m)) is not None]) for m in metrics]
        rows.append(ScoreRow(row.label, scores, notes.get(row.key or "", "")))
    own = "those of the rows trained with this package"
    lead = f"{table.source}. Lines “{PAPER}” have its scores, lines “{HERE}” {own}."
    if scenes:
        lead = (
            f"{table.source}. Lines “{PAPER}” have its scores on COCO, lines “{HERE}” those of small models on the "
            "embedded scenes: the two are not comparable, only the rows among themselves are."
        )
    below = [f"All scores times 100; {HERE}: the {split} split, {GenerationConfig().replace(**search).describe()}."]
    seeds = max(map(len, measured.values()), default=0)
    if seeds > 1:
        below.append(f"{HERE.capitalize()}: mean ± standard deviation over at most {seeds} seeds.")
    return ScoreTable(table.title, lead, metrics, tuple(rows), (*below, *([table.note] if table.note else [])))


def _format(values: Sequence[float]) -> str:
    """Return the mean over seeds, and their standard deviation where there are several."""
    if not values:
        return _BLANK
    spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.1f}{spread}"


def terminal_table(table: ScoreTable) -> Table:
    """Return the table for a terminal, two lines for each row."""
    terminal = Table("row", title=table.title, box=box.SIMPLE_HEAD, title_justify="left")
    for column in ("", *table.metrics):
        terminal.add_column(column, justify="right" if column else "left", no_wrap=True)
    for label, source, *scores in table.lines():
        terminal.add_row(label, source, *scores, style="dim" if source == PAPER else None)
    return terminal
