"""`legenda models`: every model, with its paper and its number of parameters."""

import tyro

from legenda.cli.recipes import matching
from legenda.config import Config
from legenda.errors import ConfigError, did_you_mean


class ModelsOptions(Config):
    """List the models with their parameters at the paper's size, their task and their paper.

    Variants of them, such as the rows of the papers' ablations, are recipes, which legenda recipes lists.
    """

    filter: tyro.conf.Positional[str | None] = None
    """A text in the name, the summary, the paper or the task, or a pattern such as "aoanet*"; by default all."""


def run(options: ModelsOptions) -> None:
    """Print the table."""
    from legenda.models.registry import MODELS

    entries = {name: MODELS.get(name) for name in MODELS}
    names = list(entries)
    if options.filter is not None:
        about = {name: " ".join((entry.task, entry.summary, entry.paper)) for name, entry in entries.items()}
        names = matching(options.filter, about)
        if not names:
            raise ConfigError(f"no model matches {options.filter!r}; {did_you_mean(options.filter, MODELS)}")
    from rich.table import Table

    from legenda.terminal import create_console

    columns = ("model", "parameters", "task", "what it is", "paper")
    table = Table(*columns, box=None, pad_edge=False, header_style="bold")
    table.columns[1].justify = "right"
    for name in sorted(names, key=lambda name: entries[name].task != "captioning"):
        entry = entries[name]
        count = entry.parameters or _count_parameters(name, entry.vocab_size)
        table.add_row(name, f"{count:,}", entry.task, entry.summary, entry.paper)
    create_console().print(table)


def _count_parameters(name: str, vocab_size: int) -> int:
    """Return the number of parameters of a model that a user registered, which is built for it."""
    import torch

    from legenda.models.registry import build_model

    with torch.device("meta"):
        return build_model(name, {"vocab_size": vocab_size}).parameter_count
