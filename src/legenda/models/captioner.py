"""Captioner: an encoder run once per image and a decoder run over rows of tokens."""

from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor

from legenda.decoding import beam_search
from legenda.decoding.decoder import Decoder
from legenda.decoding.generation_config import GenerationConfig
from legenda.errors import UserError
from legenda.models.config import ModelConfig
from legenda.models.encoder import Encoder
from legenda.models.model import Model
from legenda.regions import Memory, Regions


class Captioner(Model):
    """A model from regions to captions: any encoder with any decoder as wide as it."""

    encoder: Encoder
    decoder: Decoder
    config: ModelConfig
    generation_config: GenerationConfig

    def __init__(self, config: ModelConfig, decoder_config: ModelConfig | None = None) -> None:
        """decoder_config: that of another family's decoder, where `config.decoder` names one."""
        super().__init__()
        self.config = config
        self.encoder = config.build_encoder()
        self.decoder = (decoder_config or config).build_decoder()
        self.encoder.reset_parameters()
        self.decoder.reset_parameters()
        if not self.decoder.uses_global_feature:
            self.encoder.remove_global_branch()
        self.generation_config = (decoder_config or config).generation_config
        self.needs_boxes = self.encoder.needs_boxes

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
        regions = self.encoder.place(regions)
        if self.needs_boxes and regions.boxes is None:
            raise UserError(
                f"{self.name or 'this model'} needs boxes for its geometry; give Regions(features, boxes) or choose a "
                "model without geometry, such as transformer"
            )
        return self.decoder.precompute_cross_kv(self.encoder(regions)).contiguous()

    def forward(self, regions: Regions, tokens: Int[Tensor, "B K T"]) -> Float[Tensor, "B K T V"]:
        """Logits after every prefix of K rows of tokens per image; the first token of a row is the begin id."""
        return self.decoder(tokens, self.encode(regions))

    def caption(self, regions: Regions, *, beam_size: int = 3, max_length: int | None = None) -> list[str]:
        """The best caption of each image by beam search, as text; dropout plays no part in it.

        Raises UserError when the model has no vocabulary (one that was created, not loaded or trained).
        """
        if self.vocabulary is None:
            raise UserError("this model has no vocabulary, so it cannot write words; set model.vocabulary first")
        mode = self.training
        self.eval()
        found = beam_search(self, regions, beam_size=beam_size, max_length=max_length, num_return_sequences=1)
        self.train(mode)
        return [self.vocabulary.decode(row[0].tolist()) for row in found.tokens]
