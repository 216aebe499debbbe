"""The base class of all models, whatever the task."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import nn

from legenda.config import to_json
from legenda.errors import CheckpointError
from legenda.hub import CARD, upload_model
from legenda.io import write_json, write_text
from legenda.models.freeze import is_frozen
from legenda.models.weights import save_weights
from legenda.plugin_records import describe_plugins
from legenda.run_files import CONFIG, VOCABULARY
from legenda.text import Vocabulary


class Model(nn.Module):
    """A model of any task."""

    config: Any
    """Its `ModelConfig`."""
    name: str = ""
    """Its name in the registry."""
    vocabulary: Any = None
    """Its `Vocabulary`; None for a model that was created and not trained or loaded."""
    generation_config: Any = None
    """Its default `GenerationConfig`; None for a model that generates no tokens."""
    autocast_dtype: Any = None
    """The dtype to which `eval_mode` autocasts; None computes in the dtype of the weights."""
    needs_boxes: bool = False
    """Whether it reads the boxes of the regions."""

    def save(self, folder: str | Path, **sections: Any) -> Path:
        """Write config.json, model.safetensors and the vocabulary; `sections` are further parts of config.json."""
        folder = Path(folder)
        if is_frozen(self):
            raise CheckpointError(f"{self.name} is frozen for inference; save the model that legenda.load returns")
        self.save_vocabulary(folder)  # first, because it may raise
        save_weights(self.state_dict(), folder)
        config = {"model": self.describe(), **sections}
        write_json(folder / CONFIG, config | describe_plugins(config))
        return folder

    def push_to_hub(
        self, repo_id: str, *, config: Mapping[str, Any] | None = None, card: str | None = None, **options: Any
    ) -> str:
        """Upload the model to USER/MODEL on Hugging Face's hub and return the address; `legenda.load` takes the name.

        config: further parts of config.json, such as extractor, the name of that of the features. card: the model card,
        Markdown. options: commit_message, private, token, branch and create_pr, as in `PyTorchModelHubMixin`. Raise
        ConfigError where the upload fails.
        """
        with TemporaryDirectory() as folder:
            self.save(folder, **(config or {}))
            default = f"---\nlibrary_name: legenda\n---\n\n# {repo_id}\n\n{self.name} of Legenda.\n"
            write_text(Path(folder) / CARD, default if card is None else card)
            return upload_model(Path(folder), repo_id, **options)

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

    def require_vocabulary(self) -> Any:
        """Return the vocabulary; raise CheckpointError where the model was not loaded or trained with one."""
        if self.vocabulary is None:
            raise CheckpointError("this model has no vocabulary of tokens; set model.vocabulary, or train one")
        return self.vocabulary

    def require_all_or_none(self, *names: str) -> None:
        """Raise CheckpointError where only some of the named attributes are set; such a folder could not be loaded."""
        present = [name for name in names if getattr(self, name) is not None]
        missing = [name for name in names if getattr(self, name) is None]
        if present and missing:
            raise CheckpointError(f"this model has model.{present[0]} but no model.{missing[0]}; set both, or neither")

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return next(self.parameters()).device

    @property
    def parameter_count(self) -> int:
        """The number of trainable parameters."""
        return sum(parameter.numel() for parameter in self.parameters() if parameter.requires_grad)
