"""A recipe: everything a training run is, as one typed value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from legenda.data.caption_sets import DataSettings
from legenda.training.settings import Training


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A model with its options, the data it learns from and how it is trained.

    options: fields of the model's configuration that differ from its defaults; the size of the vocabulary and the
    width of the features follow from the data.
    training, fine_tuning: its stages; the second, where there is one, begins with the best model of the first.
    """

    name: str
    summary: str
    model: str
    options: Mapping[str, Any] = field(default_factory=dict)
    data: DataSettings
    training: Training
    fine_tuning: Training | None = None
