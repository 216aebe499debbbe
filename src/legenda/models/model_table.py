"""The registry of named models, whose rows are in model_table.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from legenda.plugins import Registry, resolve

if TYPE_CHECKING:
    from legenda.models.config import ModelConfig


@dataclass(frozen=True)
class Entry:
    """One named model: its configuration, what the name fixes in it, and where it comes from.

    config_class: the class of its configuration, or where it is as "module:attribute".
    row: the table of the paper, and the row in it, that this model is; empty for none.
    vocab_size: the size of the paper's vocabulary with its special ids, for which parameters are counted.
    task: what it is for.
    """

    config_class: type[ModelConfig] | str
    paper: str
    summary: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    row: str = ""
    vocab_size: int = 9488
    task: str = "captioning"

    @property
    def config(self) -> type[ModelConfig]:
        """The class of its configuration."""
        return resolve(self.config_class)


def read_models() -> dict[str, Entry]:
    """Return the entries of model_table.toml."""
    models: dict[str, Entry] = {}
    for family in tomllib.loads(
        files("legenda.models").joinpath("model_table.toml").read_text(encoding="utf-8")
    ).values():
        common = {key: family[key] for key in ("vocab_size", "task") if key in family}
        for name, (summary, *rest) in family["models"].items():
            row: str = rest[0] if rest else ""
            settings: dict[str, Any] = rest[1] if rest[1:] else {}
            paper = settings.pop("paper", family["paper"])
            settings = {key: tuple(value) if isinstance(value, list) else value for key, value in settings.items()}
            models[name] = Entry(family["config"], paper, summary, settings, row, **common)
    return models


MODELS: Registry[Entry] = Registry("model", read_models())

DECODERS: Registry[Entry] = Registry("decoder", {})
"""Decoders that users register apart from a model; each entry has a `CaptionerConfig` with `build_decoder`."""
