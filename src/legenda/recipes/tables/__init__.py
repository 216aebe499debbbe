"""The papers' tables: their rows with recipes and reported scores, in TOML files."""

import math
import tomllib
from functools import cache
from importlib.resources import files

from legenda.errors import ConfigError, did_you_mean
from legenda.recipes.tables.paper_table import PaperRow, PaperTable

_PAPERS = ("ngsan", "aoanet", "xlan", "mdsan", "other_tasks")


@cache
def all_tables() -> dict[str, PaperTable]:
    """Return every table by its name."""
    tables = {}
    for paper in _PAPERS:
        content = tomllib.loads(files("legenda.recipes.tables").joinpath(f"{paper}.toml").read_text(encoding="utf-8"))
        for key, table in content.items():
            rows = tuple(
                PaperRow(label, name or None, tuple(None if math.isnan(s) else s for s in scores), int(members or 1))
                for label, recipe, *scores in table.pop("rows")
                for name, _, members in [recipe.partition(" x ")]
            )
            metrics = tuple(table.pop("metrics"))
            name = key if paper == "other_tasks" else f"{paper}.{key}"
            tables[name] = PaperTable(name=name, metrics=metrics, rows=rows, **table)
    return tables


def get_table(name: str) -> PaperTable:
    """Return the table of that name; raise ConfigError with the closest one when there is none."""
    tables = all_tables()
    if name not in tables:
        raise ConfigError(f"there is no table {name!r}; {did_you_mean(name, tables)}")
    return tables[name]


__all__ = ["PaperRow", "PaperTable", "all_tables", "get_table"]
