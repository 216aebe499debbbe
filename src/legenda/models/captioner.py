"""Captioner: what every model that turns regions into words has in common."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor, nn

from legenda.errors import UserError
from legenda.models.decoder import Decoder, DecodingRule
from legenda.regions import Memory, Regions
from legenda.text import Vocabulary


@runtime_checkable
class ModelConfig(Protocol):
    """What the configuration of every model says."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def feature_dim(self) -> int: ...


class Captioner(nn.Module):
    """A model from regions to captions: an encoder run once per image and a decoder run over rows of tokens."""

    config: Any
    """The model's own frozen dataclass; whatever it is, it has the fields of ModelConfig."""
    decoder: Decoder
    name: str = ""
    """Its name in the registry."""
    vocabulary: Vocabulary | None = None

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.decoding = DecodingRule()

    @property
    def needs_boxes(self) -> bool:
        """Whether `encode` reads boxes."""
        raise NotImplementedError

    def encode_regions(self, regions: Regions) -> Memory:
        """The memory of checked regions."""
        raise NotImplementedError

    def encode(self, regions: Regions) -> Memory:
        """The memory of the images, computed once however many rows look at it.

        Raises UserError when the features have another width than the model's, or boxes are missing that it needs.
        """
        width = regions.features.shape[-1]
        if width != self.config.feature_dim:
            raise UserError(
                f"the features have {width} channels but {self.name or 'this model'} reads {self.config.feature_dim}; "
                f"use features of the extractor it was trained with, or create it with feature_dim={width}"
            )
        if self.needs_boxes and regions.boxes is None:
            raise UserError(
                f"{self.name or 'this model'} needs boxes for its geometry; give Regions(features, boxes) or choose a "
                "model without geometry, such as transformer"
            )
        return self.encode_regions(regions)

    def forward(self, regions: Regions, tokens: Int[Tensor, "B K T"]) -> Float[Tensor, "B K T V"]:
        """Logits after every prefix of K rows of tokens per image; the first token of a row is the begin id."""
        return self.decoder(tokens, self.encode(regions))

    def caption(self, regions: Regions, *, beam_size: int = 3, max_length: int | None = None) -> list[str]:
        """The best caption of each image by beam search, as text; dropout plays no part in it.

        Raises UserError when the model has no vocabulary (one that was created, not loaded or trained).
        """
        from legenda.decoding import beam_search  # the one call against the stream of imports, for convenience

        if self.vocabulary is None:
            raise UserError("this model has no vocabulary, so it cannot write words; set model.vocabulary first")
        mode = self.training
        self.eval()
        found = beam_search(self, regions, beam_size=beam_size, max_length=max_length, results=1)
        self.train(mode)
        return [self.vocabulary.decode(row[0].tolist()) for row in found.tokens]

    def save(self, folder: str | Path, **sections: Any) -> Path:
        """Writes config.json, model.safetensors and vocabulary.txt; `sections` join config.json."""
        from legenda.models.storage import save

        return save(self, folder, **sections)

    @property
    def parameter_count(self) -> int:
        """How many numbers training may change."""
        return sum(parameter.numel() for parameter in self.parameters() if parameter.requires_grad)
