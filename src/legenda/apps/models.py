"""`legenda models`: every named model, where it comes from and how large it is."""

from collections.abc import Sequence
from dataclasses import dataclass

from legenda.apps.options import parse

COCO_WORDS = 9488
"""The vocabulary of the NG-SAN paper with its special id, for which the numbers of parameters are told."""


@dataclass(frozen=True)
class Options:
    """Lists the models with their paper and their parameters at the paper's size on COCO."""


def run(arguments: Sequence[str]) -> None:
    """Prints to the standard output."""
    parse(Options, arguments, "models")
    import torch

    from legenda.models import create_model, describe_model, list_models

    names = list_models()
    width = max(map(len, names))
    for name in names:
        entry = describe_model(name)
        with torch.device("meta"):
            count = create_model(name, vocab_size=COCO_WORDS).parameter_count
        print(f"{name:<{width}}  {count:>12,} parameters  {entry.summary} ({entry.paper})")
