"""The base classes of all models and of their configurations, whatever the task."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from torch import nn

from legenda.config import to_json
from legenda.errors import CheckpointError, ConfigError
from legenda.io import write_json
from legenda.models.weights import save_weights
from legenda.run_files import CONFIG, VOCABULARY
from legenda.text import Vocabulary


@dataclass(frozen=True, kw_only=True)
class Config:
    """Options of every model.

    derived: the fields that follow from the data, which no recipe and no command line sets.
    """

    vocab_size: int
    """Tokens of the vocabulary, special tokens included."""

    derived: ClassVar[tuple[str, ...]] = ("vocab_size", "feature_dim")

    def build(self) -> Model:
        """Return a new model with random weights, for models other than captioners."""
        raise NotImplementedError

    def require_positive(self, *names: str) -> None:
        """Raise ConfigError unless the size of the vocabulary and the named fields are at least 1."""
        for name in ("vocab_size", *names):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, not {getattr(self, name)}")

    def require_probabilities(self, *names: str) -> None:
        """Raise ConfigError unless each named field is a probability below 1."""
        for name in names:
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)} must lie in 0..1, below 1")


class Model(nn.Module):
    """A model of any task."""

    config: Any
    """Its `Config`."""
    name: str = ""
    """Its name in the registry."""
    vocabulary: Any = None
    """Its `Vocabulary`; None for a model that was created and not trained or loaded."""
    generation_config: Any = None
    """Its default `GenerationConfig`; None for a model that generates no tokens."""
    needs_boxes: bool = False
    """Whether it reads the boxes of the regions."""

    def save(self, folder: str | Path, **sections: Any) -> Path:
        """Write config.json, model.safetensors and the vocabulary; `sections` are further parts of config.json."""
        folder = Path(folder)
        self.save_vocabulary(folder)  # first, because it may raise
        save_weights(self.state_dict(), folder)
        write_json(folder / CONFIG, {"model": self.describe(), **sections})
        return folder

    def describe(self) -> dict[str, Any]:
        """Return the "model" part of config.json: name, options, generation config, and whether a vocabulary exists."""
        generation = {} if self.generation_config is None else {"generation_config": to_json(self.generation_config)}
        return {
            "name": self.name,
            "options": to_json(self.config),
            **generation,
            "vocabulary": self.vocabulary is not None,
        }

    def save_vocabulary(self, folder: Path) -> None:
        """Write the vocabulary into a folder, atomically; subclasses write further files of tokens."""
        if self.vocabulary is not None:
            self.vocabulary.save(folder / VOCABULARY)

    def load_vocabulary(self, folder: Path) -> None:
        """Read the files of `save_vocabulary`; raise an error naming a file that is missing or damaged."""
        self.vocabulary = Vocabulary.load(folder / VOCABULARY)

    def require_all_or_none(self, *names: str) -> None:
        """Raise CheckpointError where only some of the named attributes are set; such a folder could not be loaded."""
        present = [name for name in names if getattr(self, name) is not None]
        missing = [name for name in names if getattr(self, name) is None]
        if present and missing:
            raise CheckpointError(f"this model has model.{present[0]} but no model.{missing[0]}; set both, or neither")

    @property
    def parameter_count(self) -> int:
        """The number of trainable parameters."""
        return sum(parameter.numel() for parameter in self.parameters() if parameter.requires_grad)
