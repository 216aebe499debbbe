"""`legenda models`: every model, with its paper and its number of parameters."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import tyro

from legenda.cli.recipes import matching
from legenda.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from legenda.models.registry import Entry


@dataclass(frozen=True)
class Options:
    """List the models with their parameters at the paper's size, their task and their paper.

    Variants of them, such as the rows of the papers' ablations, are recipes, which legenda recipes lists.
    """

    filter: tyro.conf.Positional[str | None] = None
    """A text in the name, the summary, the paper or the task, or a pattern such as "aoanet*"; by default all."""


def run(options: Options) -> None:
    """Print the table."""
    from legenda.models.registry import MODELS

    names = list(MODELS)
    if options.filter is not None:
        names = matching(options.filter, names, lambda name: _describe(MODELS.get(name)))
        if not names:
            raise ConfigError(f"no model matches {options.filter!r}; {did_you_mean(options.filter, MODELS)}")
    import torch
    from rich.table import Table

    from legenda.models.registry import build_model
    from legenda.terminal import create_console

    columns = ("model", "parameters", "task", "what it is", "paper")
    table = Table(*columns, box=None, pad_edge=False, header_style="bold")
    table.columns[1].justify = "right"
    for name in sorted(names, key=lambda name: MODELS.get(name).task != "captioning"):
        entry = MODELS.get(name)
        with torch.device("meta"):
            count = build_model(name, {"vocab_size": entry.vocab_size}).parameter_count
        table.add_row(name, f"{count:,}", entry.task, entry.summary, entry.paper)
    create_console().print(table)


def _describe(entry: "Entry") -> str:
    return " ".join((entry.task, entry.summary, entry.paper))
