"""Measured scores next to those that a paper reports, as an offline HTML page and as Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from legenda.io import write_text
from legenda.report.page import render_html

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
    """Write the table as one self-contained HTML file; raise an error when the file cannot be written."""
    rows = [{"label": row.label, "note": row.note, "lines": row.lines()} for row in table.rows]
    page = render_html(
        "score-table.html",
        styles=("theme.css", "page.css", "score-table.css"),
        scripts=("dom.js", "score-table.js"),
        data={"metrics": table.metrics, "rows": rows, "notes": table.notes},
        texts={"title": table.title, "lead": table.lead},
        sources={"img-src": "data:"},
    )
    write_text(path, page)
