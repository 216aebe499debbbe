"""Captioner: an encoder that runs once per image and a decoder over rows of tokens."""

from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor

from legenda.decoding import beam_search
from legenda.decoding.decoder import Decoder
from legenda.decoding.generation_config import GenerationConfig
from legenda.errors import DataError
from legenda.models.config import CaptionerConfig
from legenda.models.encoder import Encoder
from legenda.models.eval_mode import eval_mode
from legenda.models.model import Model
from legenda.regions import Memory, Regions, hide_regions


class Captioner(Model):
    """A model from regions to captions: any encoder with any decoder of the same width."""

    encoder: Encoder
    decoder: Decoder
    config: CaptionerConfig
    generation_config: GenerationConfig

    def __init__(self, config: CaptionerConfig, decoder_config: CaptionerConfig | None = None) -> None:
        """Build encoder and decoder; decoder_config: of another family's decoder, where `config.decoder` is set."""
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
        """Return the memory of the images, computed once for any number of rows.

        Raise DataError where the features have another width than the model's, or needed boxes are missing.
        """
        width = regions.features.shape[-1]
        if width != self.config.feature_dim:
            raise DataError(
                f"the features have {width} channels but {self.name or 'this model'} reads {self.config.feature_dim}; "
                f"use features of the extractor it was trained with, or create it with feature_dim={width}"
            )
        regions = self.encoder.with_default_boxes(regions)
        if self.needs_boxes and regions.boxes is None:
            raise DataError(
                f"{self.name or 'this model'} needs boxes for its geometry; pass Regions(features, boxes) or choose a "
                "model without geometry, such as transformer"
            )
        if self.training and self.config.region_dropout:
            regions = hide_regions(regions, self.config.region_dropout)
        return self.decoder.precompute_cross_kv(self.encoder(regions)).contiguous()

    def forward(self, regions: Regions, tokens: Int[Tensor, "B K T"]) -> Float[Tensor, "B K T V"]:
        """Return the logits after every prefix of K rows of tokens per image; each row begins with bos_token_id."""
        return self.decoder(tokens, self.encode(regions))

    def caption(self, regions: Regions, *, beam_size: int = 3, max_length: int | None = None) -> list[str]:
        """Return the best caption of each image by beam search, as text, in evaluation mode.

        Raise CheckpointError where the model has no vocabulary (it was created, not loaded or trained).
        """
        vocabulary = self.require_vocabulary()
        with eval_mode(self):
            output = beam_search(self, regions, beam_size=beam_size, max_length=max_length, num_return_sequences=1)
        return [vocabulary.decode(row[0].tolist()) for row in output.tokens]
