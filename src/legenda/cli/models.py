"""`legenda models`: every named model, with its paper and its number of parameters."""

from collections.abc import Sequence
from dataclasses import dataclass

from legenda.cli.options import parse


@dataclass(frozen=True)
class Options:
    """List the models with their parameters at the paper's size, their task, their paper and the row of its table."""


def run(arguments: Sequence[str]) -> None:
    """Print the table."""
    parse(Options, arguments, "models")
    import torch
    from rich.console import Console
    from rich.table import Table

    from legenda.models.model_table import MODELS
    from legenda.models.registry import build_model

    columns = ("model", "parameters", "task", "what it is", "paper", "row")
    table = Table(*columns, box=None, pad_edge=False, header_style="bold")
    table.columns[1].justify = "right"
    for name in sorted(MODELS, key=lambda name: (MODELS.get(name).task != "captioning", name)):
        entry = MODELS.get(name)
        with torch.device("meta"):
            count = build_model(name, {"vocab_size": entry.vocab_size}).parameter_count
        table.add_row(name, f"{count:,}", entry.task, entry.summary, entry.paper, entry.row)
    console = Console()
    if not console.is_terminal:
        console = Console(width=400)  # a pipe has no width: do not wrap lines
    console.print(table)
