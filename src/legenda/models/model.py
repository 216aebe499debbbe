"""What every model has, whatever its task: a name, a configuration, words, and a folder to live in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from torch import nn

from legenda.errors import UserError
from legenda.run_files import VOCABULARY
from legenda.text import Vocabulary


@dataclass(frozen=True, kw_only=True)
class Config:
    """What the configuration of every model says.

    derived: the fields that follow from the data, so that no recipe and no command line sets them.
    """

    vocab_size: int
    """Words of the vocabulary, special ids included."""

    derived: ClassVar[tuple[str, ...]] = ("vocab_size", "feature_dim")

    def build(self) -> Model:
        """A new model with random weights, for the models that are no captioners."""
        raise NotImplementedError

    def positive(self, *names: str) -> None:
        """Raises UserError unless the size of the vocabulary and the named fields are at least 1."""
        for name in ("vocab_size", *names):
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be at least 1, not {getattr(self, name)}")

    def shares(self, *names: str) -> None:
        """Raises UserError unless each named field is a probability below 1."""
        for name in names:
            if not 0 <= getattr(self, name) < 1:
                raise UserError(f"{name}={getattr(self, name)} must lie in 0..1, below 1")


class Model(nn.Module):
    """A model of any task."""

    config: Any
    """Its `Config`."""
    name: str = ""
    """Its name in the registry."""
    vocabulary: Any = None
    """Its `Vocabulary`; None where it has no words yet."""
    generation_config: Any = None
    """The `GenerationConfig` by which its sentences are searched for; None where it says none."""
    needs_boxes: bool = False
    """Whether it reads where the regions lie."""

    def save_words(self, folder: Path) -> None:
        """Writes the words into a folder, each file whole; a model with more than a vocabulary adds its own."""
        if self.vocabulary is not None:
            self.vocabulary.save(folder / VOCABULARY)

    def check_words(self, *names: str) -> None:
        """UserError where the model has but some of the named parts: a folder with those could not be loaded."""
        has = [name for name in names if getattr(self, name) is not None]
        lacks = [name for name in names if getattr(self, name) is None]
        if has and lacks:
            raise UserError(
                f"this model has model.{has[0]} but no model.{lacks[0]}; set both, or neither, and save it then"
            )

    def load_words(self, folder: Path) -> None:
        """Reads what `save_words` wrote; UserError names a file that is missing or damaged."""
        self.vocabulary = Vocabulary.load(folder / VOCABULARY)

    def save(self, folder: str | Path, **sections: Any) -> Path:
        """Writes config.json, model.safetensors and the words; `sections` join config.json."""
        from legenda.models.checkpoint import save

        return save(self, folder, **sections)

    @property
    def parameter_count(self) -> int:
        """How many numbers training may change."""
        return sum(parameter.numel() for parameter in self.parameters() if parameter.requires_grad)
