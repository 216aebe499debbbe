"""Options of X-Transformer (Pan et al., CVPR 2020, section 4.2, as released)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

from pydantic import Field, model_validator

from legenda.config import Count, PositiveInt, Probability
from legenda.errors import ConfigError
from legenda.models.x_linear_config import XLinearConfig

if TYPE_CHECKING:
    from legenda.models.xtransformer.decoder import XTransformerLayer


class XTransformerConfig(XLinearConfig):
    """Options of X-Transformer; the defaults are those of the released code, as the paper gives no details.

    Token 0 begins and ends captions: inside a row, later tokens do not attend to it.
    """

    decoder_class: ClassVar[str] = "legenda.models.xtransformer.decoder:XTransformerDecoder"

    dim: int = 768
    """Channels inside the model."""
    num_layers: int = 6
    """Layers of the encoder; 0 for none."""
    decoder_layers: Count = 6
    """Layers of the decoder."""
    ff_dim: PositiveInt = 3072
    """Inner channels of the feed-forward networks."""
    ff_dropout: Probability = 0.5
    """Inside the feed-forward networks, and of their outputs."""
    region_norm: bool = True
    """Layer normalization in the region embedding."""
    decoder_update_dropout: Probability = 0.3
    """Of the update of each token (the residual dropout of a decoder layer)."""
    word_dropout: float = 0.1
    """Of the token embeddings."""
    position_base: Annotated[float, Field(gt=1)] = 10000.0
    """The wavelengths of the positions rise from 2 pi to 2 pi times this."""

    @model_validator(mode="after")
    def _check_xtransformer(self) -> Self:
        if self.dim % 2:
            raise ConfigError(f"dim={self.dim} must be even for sine and cosine of the positions")
        return self

    def encoder_arguments(self) -> dict[str, Any]:
        """Return the arguments of X-LAN's encoder, here with a feed-forward network after each layer."""
        return super().encoder_arguments() | self.values_of("ff_dim", "ff_dropout")

    def decoder_arguments(self) -> dict[str, Any]:
        """Return the keyword arguments of the decoder."""
        from legenda.attention.x_linear import create_act

        return {
            **self.values_of("vocab_size", "dim", "num_heads", "position_base", "word_dropout", "output_dropout"),
            "num_layers": self.decoder_layers,
            "create_layer": self._create_layer,
            "act": create_act(self.act, self.alpha),
            "dropout": self.decoder_dropout,
        }

    def _create_layer(self, is_last: bool) -> XTransformerLayer:
        from legenda.models.layers import PostNormFeedForward
        from legenda.models.xtransformer.decoder import XTransformerLayer

        return XTransformerLayer(
            self.create_block(),
            self.create_block(),
            self.dim,
            dropout=self.decoder_dropout,
            update=None if is_last else self.create_update(self.decoder_update_dropout),
            feed_forward=None if is_last else PostNormFeedForward(self.dim, self.ff_dim, self.ff_dropout),
        )
