"""The tables that `legenda score` prints."""

from collections.abc import Iterable, Mapping
from typing import Any

from rich import box
from rich.table import Table

from legenda.metrics import Difference, Diversity, Interval, Oracle, Scores


def score_table(scores: Scores, bounds: Mapping[str, Interval | None]) -> Table:
    """Return a table with the score and the interval of each metric."""
    rows = ((metric, value, _format_interval(bounds[metric])) for metric, value in scores.corpus.items())
    return _table(("metric", "score", "95 % interval"), rows)


def comparison_table(first: Scores, second: Scores, differences: Mapping[str, Difference | None]) -> Table:
    """Return a table with both scores of each metric, their difference, its interval, and p."""
    rows = []
    for metric, value in first.corpus.items():
        found = differences[metric]
        difference = None if found is None else f"{found.difference:+.4f}"
        p = None if found is None else found.p
        rows.append((metric, value, second.corpus[metric], difference, _format_interval(found), p))
    return _table(("metric", "first", "second", "difference", "95 % interval", "p"), rows)


def disagreement_table(rows: Iterable[tuple[str, float, float, float, Any, Any]]) -> Table:
    """Return a table of examples with the difference of two scores, the scores, and the predictions that have them."""
    found = [
        line
        for name, difference, a, b, first, second in rows
        for line in ((name, f"{difference:+.4f}", a, str(first)), ("", "", b, str(second)))
    ]
    table = _table(("id", "difference", "score", "first, second"), found)
    table.columns[-1].justify = "left"
    return table


def diversity_table(found: Diversity) -> Table:
    """Return a table with one measure of diversity a row."""
    measures = (("distinct", found.distinct), ("mBLEU", found.mbleu))
    rows = [(f"{kind}-{n}", value) for kind, values in measures for n, value in enumerate(values, start=1)]
    return _table(("measure", "value"), [*rows, ("self-CIDEr", found.self_cider)])


def oracle_table(found: Mapping[str, Oracle]) -> Table:
    """Return a table with each metric's mean over the best captions of the images, and over all captions."""
    rows = ((metric, oracle.best, oracle.mean) for metric, oracle in found.items())
    return _table(("metric", "best caption", "mean caption"), rows)


def _table(columns: Iterable[str], rows: Iterable[Iterable[str | float | None]]) -> Table:
    """Return a table whose first column is text; numbers have four decimals, and None is "none"."""
    table = Table(box=box.SIMPLE_HEAD)
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left")
    for row in rows:
        table.add_row(
            *(f"{cell:.4f}" if isinstance(cell, float | int) else "none" if cell is None else cell for cell in row)
        )
    return table


def _format_interval(interval: Interval | Difference | None) -> str | None:
    return None if interval is None else f"{interval.low:.4f} .. {interval.high:.4f}"
