"""The tables that `legenda score` prints."""

from collections.abc import Mapping

from rich import box
from rich.table import Table

from legenda.metrics import Difference, Diversity, Interval, Oracle, Scores


def score_table(scores: Scores, bounds: Mapping[str, Interval | None]) -> Table:
    """Return a table with the score and the interval of each metric."""
    table = _table("metric", "score", "95 % interval")
    for metric, value in scores.corpus.items():
        table.add_row(metric, _format_score(value), _format_interval(bounds[metric]))
    return table


def comparison_table(first: Scores, second: Scores, differences: Mapping[str, Difference | None]) -> Table:
    """Return a table with both scores of each metric, their difference, its interval, and p."""
    table = _table("metric", "first", "second", "difference", "95 % interval", "p")
    for metric, value in first.corpus.items():
        found = differences[metric]
        cells = ["none"] * 3
        if found is not None:
            cells = [f"{found.difference:+.4f}", _format_interval(found), f"{found.p:.4f}"]
        table.add_row(metric, _format_score(value), _format_score(second.corpus[metric]), *cells)
    return table


def diversity_table(found: Diversity) -> Table:
    """Return a table with one measure of diversity a row."""
    table = _table("measure", "value")
    for kind, values in (("distinct", found.distinct), ("mBLEU", found.mbleu)):
        for n, value in enumerate(values, start=1):
            table.add_row(f"{kind}-{n}", _format_score(value))
    table.add_row("self-CIDEr", _format_score(found.self_cider))
    return table


def oracle_table(found: Mapping[str, Oracle]) -> Table:
    """Return a table with each metric's mean over the best captions of the images, and over all captions."""
    table = _table("metric", "best caption", "mean caption")
    for metric, oracle in found.items():
        table.add_row(metric, _format_score(oracle.best), _format_score(oracle.mean))
    return table


def _table(first: str, *columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column(first)
    for column in columns:
        table.add_column(column, justify="right")
    return table


def _format_score(value: float | None) -> str:
    return "none" if value is None else f"{value:.4f}"


def _format_interval(interval: Interval | Difference | None) -> str:
    return "none" if interval is None else f"{interval.low:.4f} .. {interval.high:.4f}"
