"""The base classes of the configurations of models; importing them needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from legenda.config import Config, PositiveInt
from legenda.plugins import resolve

if TYPE_CHECKING:
    from legenda.decoding.decoder import Decoder
    from legenda.decoding.generation_config import GenerationConfig
    from legenda.models.encoder import Encoder
    from legenda.models.model import Model


class ModelConfig(Config):
    """Options of every model.

    derived: the fields that follow from the data, which no recipe and no command line sets.
    """

    vocab_size: PositiveInt
    """Tokens of the vocabulary, special tokens included."""

    derived: ClassVar[tuple[str, ...]] = ("vocab_size", "feature_dim")

    model_class: ClassVar[str] = ""
    """The class of models other than captioners, as "module:attribute"; it is called with the configuration."""

    def build(self) -> Model:
        """Return a new model with random weights, for models other than captioners."""
        return resolve(self.model_class)(self)


class CaptionerConfig(ModelConfig):
    """Options of every captioner; a family's configuration adds others and builds encoder and decoder."""

    feature_dim: PositiveInt = 2048
    """Channels of a region feature."""
    dim: PositiveInt = 512
    """Channels inside the model."""
    region_dropout: float = 0.0
    """Probability of hiding each region in training; at least one of an image stays."""
    decoder: str | Mapping[str, Any] | None = None
    """Another model whose decoder replaces this model's: its name, or {"name": ...} with options of that model."""

    encoder_class: ClassVar[str] = ""
    decoder_class: ClassVar[str] = ""
    """The classes as "module:attribute"; they are called with `encoder_arguments` and `decoder_arguments`."""

    generation: ClassVar[Mapping[str, Any]] = {}
    """The options of generation in the release of the decoder that differ from the defaults."""

    @property
    def memory_dim(self) -> int:
        """Channels of the encoder's output, which the decoder attends to."""
        return self.dim

    def build_encoder(self) -> Encoder:
        """Return a new encoder with random weights."""
        return resolve(self.encoder_class)(**self.encoder_arguments())

    def build_decoder(self) -> Decoder:
        """Return a new decoder with random weights."""
        return resolve(self.decoder_class)(**self.decoder_arguments())

    def encoder_arguments(self) -> dict[str, Any]:
        """Return the keyword arguments of the encoder."""
        return {}

    def decoder_arguments(self) -> dict[str, Any]:
        """Return the keyword arguments of the decoder."""
        return {}

    @property
    def generation_config(self) -> GenerationConfig:
        """The defaults of generation in the release of the decoder."""
        from legenda.decoding.generation_config import GenerationConfig

        return GenerationConfig(**self.generation)
