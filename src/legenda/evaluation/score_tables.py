"""The tables that `legenda score` prints."""

from collections.abc import Mapping

from rich import box
from rich.table import Table

from legenda.metrics import Difference, Diversity, Interval, Oracle, Scores


def score_table(scores: Scores, spread: Mapping[str, Interval | None]) -> Table:
    """A metric a row: score and interval."""
    table = _table("metric", "score", "95 % interval")
    for metric, value in scores.corpus.items():
        table.add_row(metric, _number(value), _between(spread[metric]))
    return table


def comparison_table(first: Scores, second: Scores, differences: Mapping[str, Difference | None]) -> Table:
    """A metric a row: both scores, their difference, its interval, and p."""
    table = _table("metric", "first", "second", "difference", "95 % interval", "p")
    for metric, value in first.corpus.items():
        found = differences[metric]
        told = ["none"] * 3
        if found is not None:
            told = [f"{found.difference:+.4f}", _between(found), f"{found.p:.4f}"]
        table.add_row(metric, _number(value), _number(second.corpus[metric]), *told)
    return table


def diversity_table(found: Diversity) -> Table:
    """A measure of diversity a row."""
    table = _table("measure", "value")
    for kind, values in (("distinct", found.distinct), ("mBLEU", found.mbleu)):
        for n, value in enumerate(values, start=1):
            table.add_row(f"{kind}-{n}", _number(value))
    table.add_row("self-CIDEr", _number(found.self_cider))
    return table


def oracle_table(found: Mapping[str, Oracle]) -> Table:
    """A metric a row: the best caption of each image, and the mean of all."""
    table = _table("metric", "best caption", "mean caption")
    for metric, oracle in found.items():
        table.add_row(metric, _number(oracle.best), _number(oracle.mean))
    return table


def _table(first: str, *columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column(first)
    for column in columns:
        table.add_column(column, justify="right")
    return table


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.4f}"


def _between(interval: Interval | Difference | None) -> str:
    return "none" if interval is None else f"{interval.low:.4f} .. {interval.high:.4f}"
