"""Options of X-LAN, and those that it shares with X-Transformer (Pan et al., CVPR 2020)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import model_validator

from legenda.attention.registries import Act
from legenda.config import Count, NonNegativeCount, PositiveFloat, PositiveInt, Probability
from legenda.errors import ConfigError
from legenda.models.config import CaptionerConfig

if TYPE_CHECKING:
    from legenda.attention.additive import AdditiveAttention
    from legenda.attention.x_linear import XLinearAttention
    from legenda.models.x_linear import ConcatUpdate


class XLinearConfig(CaptionerConfig):
    """Options of both models of the paper; the defaults are those of the released X-LAN."""

    encoder_class: ClassVar[str] = "legenda.models.x_linear:XLinearEncoder"

    generation: ClassVar[Mapping[str, Any]] = {"max_length": 17}
    """Finished hypotheses keep their beams and are ranked by log-probability; at most 16 tokens and the end."""

    dim: int = 1024
    """Channels inside the model."""
    num_heads: Count = 8
    mid_dim: PositiveInt | None = None
    """Channels of B' in each head (D_c); half of the head's by default."""
    num_layers: NonNegativeCount = 4
    """X-Linear blocks of the encoder; 0 for none."""
    decoder_layers: Count = 1
    """X-Linear blocks of the decoder, or its layers."""
    act: Act = "celu"
    """Of query, key and value inside the blocks: "celu" is the paper's ELU, "relu" goes without (Table 3)."""
    alpha: PositiveFloat = 1.3
    """Alpha of the CELU, its negative saturation value."""
    region_act: Act = "celu"
    """Of the region embedding."""
    region_norm: bool = False
    """Layer normalization in the region embedding."""
    region_dropout: Probability = 0.5
    """Of the embedded regions."""
    mid_dropout: Probability = 0.1
    """Inside the blocks, of B'."""
    encoder_dropout: Probability = 0.5
    """Of the output of an encoder block."""
    update_dropout: Probability = 0.3
    """Of the update of each region by the attended vector (Eq. 8)."""
    word_dropout: Probability = 0.5
    """Of the token embeddings."""
    decoder_dropout: Probability = 0.5
    """Of the output of a decoder block."""
    output_dropout: Probability = 0.5
    """Before the output layer; the release sets it to 0 while it samples captions for self-critical training."""

    @model_validator(mode="after")
    def _check_x_linear(self) -> Self:
        if self.dim % self.num_heads:
            raise ConfigError(f"dim={self.dim} must be a multiple of num_heads={self.num_heads}")
        if self.mid_channels < 1:
            raise ConfigError(f"mid_dim={self.mid_dim} must be at least 1; dim or mid_dim is too small for the heads")
        return self

    @property
    def as_released(self) -> bool:
        """Whether the released code is followed where the paper differs."""
        return True

    @property
    def mid_channels(self) -> int:
        """Channels of B' in each head."""
        return self.dim // self.num_heads // 2 if self.mid_dim is None else self.mid_dim

    def create_block(self) -> XLinearAttention:
        """Return an X-Linear block."""
        from legenda.attention.x_linear import XLinearAttention

        return XLinearAttention(
            self.dim,
            self.num_heads,
            mid_dim=self.mid_channels,
            act=self.act,
            alpha=self.alpha,
            norm=self.as_released,
            bias=self.as_released,
            dropout=self.mid_dropout,
        )

    def create_update(self, dropout: float | None = None) -> ConcatUpdate:
        """Return the update of Eq. 8; dropout: that of the encoder by default."""
        from legenda.models.x_linear import ConcatUpdate

        rate = self.update_dropout if dropout is None else dropout
        return ConcatUpdate(self.dim, bias=self.as_released, dropout=rate)

    def encoder_arguments(self) -> dict[str, Any]:
        """Return the keyword arguments of the encoder."""
        from legenda.attention.x_linear import create_act

        return {
            **self.values_of("feature_dim", "dim", "num_layers", "create_block", "create_update", "as_released"),
            "act": create_act(self.region_act, self.alpha),
            "input_norm": self.region_norm,
            "input_dropout": self.region_dropout,
            "block_dropout": self.encoder_dropout,
        }


class XLanConfig(XLinearConfig):
    """Options of X-LAN and the rows of its Table 3; the defaults are those of the released code.

    `reading="paper"` follows the equations as printed: no normalization and no biases in the X-Linear blocks, no biases
    in Eqs. 8 and 10, no normalization after Eq. 10, and no layer with normalization between attention and GLU. Keys and
    values have separate updates (Eq. 8; the last layer's keys are not read and have none), and the LSTM reads the
    concatenation of embedding, global feature and context instead of the embedding and the sum of the other two
    (section 3.3.3). Sizes are in the recipe `coco.xlan_paper`: one head of 1,024 channels with D_c = 512 (section 4.1),
    the plain ELU (alpha 1), and no activation after the embedding of regions and tokens. Dropout, which the paper does
    not mention, stays.
    """

    decoder_class: ClassVar[str] = "legenda.models.xlan:XLanDecoder"

    reading: Literal["released", "paper"] = "released"
    """Whether the released code or the paper is followed where they differ."""
    attention: Literal["x_linear", "conventional"] = "x_linear"
    """The decoder's attention: X-Linear blocks, or the additive attention of Eq. 1 (Table 3, base)."""
    word_act: Act = "celu"
    """Of the token embedding."""
    context_dropout: Probability = 0.5
    """Of the context as input of the next step."""

    @property
    def as_released(self) -> bool:
        """Whether the released code is followed where the paper differs."""
        return self.reading == "released"

    def decoder_arguments(self) -> dict[str, Any]:
        """Return the keyword arguments of the decoder."""
        from legenda.attention.x_linear import create_act

        return {
            **self.values_of("vocab_size", "dim", "as_released", "word_dropout", "context_dropout", "output_dropout"),
            "num_layers": self.decoder_layers,
            "create_attention": self._create_attention,
            "act": create_act(self.word_act, self.alpha),
            "attention_dropout": self.decoder_dropout,
        }

    def _create_attention(self) -> XLinearAttention | AdditiveAttention:
        from legenda.attention.additive import AdditiveAttention

        if self.attention == "x_linear":
            return self.create_block()
        return AdditiveAttention(self.dim, self.dim, self.num_heads * self.mid_channels)
