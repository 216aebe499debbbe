"""The figures of the papers, drawn from trained models."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files


@dataclass(frozen=True)
class FigureEntry:
    """A figure: what it shows, the runs it needs, and the module and options of the function with its name."""

    shows: str
    needs: str
    module: str
    options: str


_TABLE = tomllib.loads(files("legenda.report.paper_figures").joinpath("figures.toml").read_text("utf-8"))

FIGURES: Mapping[str, FigureEntry] = {name: FigureEntry(**entry) for name, entry in _TABLE.items()}
