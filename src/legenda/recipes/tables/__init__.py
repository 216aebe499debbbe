"""The papers' tables: their rows, which recipes those are, and the scores that the papers report."""

from legenda.errors import UserError, nearest
from legenda.recipes.tables.aoanet import AOANET_TABLES
from legenda.recipes.tables.mdsan import MDSAN_TABLES
from legenda.recipes.tables.ngsan import NGSAN_TABLES
from legenda.recipes.tables.paper_table import PaperRow, PaperTable
from legenda.recipes.tables.xlan import XLAN_TABLES


def all_tables() -> dict[str, PaperTable]:
    """Every table by its name."""
    return {table.name: table for table in (*NGSAN_TABLES, *AOANET_TABLES, *XLAN_TABLES, *MDSAN_TABLES)}


def get_table(name: str) -> PaperTable:
    """The table of that name; UserError with the nearest one when there is none."""
    tables = all_tables()
    if name not in tables:
        raise UserError(f"there is no table {name!r}; {nearest(name, tables)}")
    return tables[name]


__all__ = ["PaperRow", "PaperTable", "all_tables", "get_table"]
