"""Short names of several run folders."""

from collections.abc import Sequence
from pathlib import Path

from legenda.errors import UserError


def short_names(folders: Sequence[Path]) -> dict[str, Path]:
    """The folders under names that tell them apart, as short as can be; UserError where one comes twice."""
    parts = [folder.resolve().parts for folder in folders]
    if len(set(parts)) < len(parts):
        raise UserError("one run folder is named twice; name each once")
    length = next(n for n in range(1, max(map(len, parts)) + 1) if len({p[-n:] for p in parts}) == len(parts))
    return {"/".join(p[-length:]): folder for p, folder in zip(parts, folders, strict=True)}
