"""Options of AoANet and its ablations (Huang et al., ICCV 2019)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import model_validator

from legenda.attention.config import AttentionConfig
from legenda.attention.registries import BOX_EMBEDDINGS
from legenda.config import Count, NonNegativeCount, PositiveInt, Probability
from legenda.errors import ConfigError
from legenda.models.config import CaptionerConfig

if TYPE_CHECKING:
    from torch import nn

    from legenda.models.aoanet.encoder import RefinerLayer


class AoANetConfig(AttentionConfig, CaptionerConfig):
    """Options of AoANet and its ablations; the defaults are those of the released code.

    `reading="paper"` follows the equations as printed: no ReLU after region and word embeddings, normalization after
    each layer of the refiner (Eq. 7) instead of before it, none of the decoder's query, no biases in the projections of
    attention and in the output layer, and the projected query in information and gate (Eq. 6).
    """

    encoder_class: ClassVar[str] = "legenda.models.aoanet.encoder:AoANetEncoder"
    decoder_class: ClassVar[str] = "legenda.models.aoanet.decoder:AoANetDecoder"

    generation: ClassVar[Mapping[str, Any]] = {"finished_beams": "release", "max_length": 20}
    """Finished hypotheses leave the beam; at most 20 tokens, as in the release."""

    dim: int = 1024
    """Channels inside the model."""
    word_dim: PositiveInt | None = None
    """Channels of a word embedding; `dim` by default."""
    num_heads: Count = 8
    num_layers: NonNegativeCount = 6
    """Layers of the refiner, or 0."""
    refiner_aoa: bool = True
    """Attention on attention in the refiner; otherwise the heads are projected as in a Transformer."""
    refiner_ff: bool = False
    """A feed-forward network after each attention of the refiner."""
    ff_dim: PositiveInt = 2048
    """Inner channels of that network."""
    context: Literal["aoa", "lstm", "lstm_aoa", "linear"] = "aoa"
    """How the decoder computes the context from attended regions and hidden state (Figure 7); linear is "base"."""
    multi_head: bool = True
    """Multi-head attention in the decoder; otherwise one additive head."""
    additive_dim: PositiveInt = 512
    """Inner channels of the additive attention."""
    multi_head_scale: Count = 1
    """The channels of all heads together are `dim` times this."""
    use_bn: int = 0
    """Batch normalization of the regions: 0 none, 1 before their embedding, 2 before and after it."""
    mean_feats: bool = True
    """The global feature is the mean of the refined regions; otherwise an embedding of the image's feature."""
    reading: Literal["released", "paper"] = "released"
    """Whether the released code or the paper is followed where they differ."""
    dropout: Probability = 0.5
    """Of embeddings and of the context before the output layer."""
    aoa_dropout: Probability = 0.3
    """Of the input of attention on attention in the refiner."""
    attention_dropout: Probability = 0.1
    """Of attention weights, and of the output of each sublayer of the refiner."""
    recurrent: bool = False
    """The regions are frames of a video in their order, and a bidirectional LSTM precedes the refiner, with half of the
    channels in each direction (section 4.6)."""
    context_dropout: bool = True
    """Dropout also of the context as input of the next step."""

    @model_validator(mode="after")
    def _check_ao_a_net(self) -> Self:
        if self.dim * self.multi_head_scale % self.num_heads:
            raise ConfigError(f"dim={self.dim} must be a multiple of num_heads={self.num_heads}")
        if self.use_bn not in (0, 1, 2):
            raise ConfigError(f"use_bn must be 0, 1 or 2, not {self.use_bn}")
        if self.multi_head_scale > 1 and not self.multi_head:
            raise ConfigError("multi_head_scale above 1 needs multi_head")
        if self.geometry in BOX_EMBEDDINGS:
            raise ConfigError(f"geometry={self.geometry!r} belongs to the Transformer; choose query, key or content")
        if self.reading == "paper" and (self.branches > 1 or self.branch_residual or self.attention == "x_linear"):
            raise ConfigError(
                "reading='paper' gates with the projected query of a single attention; leave out its options"
            )
        if self.recurrent and self.dim % 2:
            raise ConfigError(f"recurrent=True needs an even dim, not {self.dim}")
        self.check(self.dim)
        return self

    @property
    def word_channels(self) -> int:
        """Channels of a word embedding."""
        return self.dim if self.word_dim is None else self.word_dim

    @property
    def attended_dim(self) -> int:
        """Channels of all heads of one attention."""
        return self.dim * self.multi_head_scale

    def encoder_arguments(self) -> dict[str, Any]:
        """Return the keyword arguments of region embedding and refiner."""
        from legenda.attention.builders import create_pair_geometry

        return {
            **self.values_of("feature_dim", "dim", "num_layers", "use_bn", "recurrent", "mean_feats", "dropout"),
            "create_layer": self._create_layer,
            "create_geometry": lambda: create_pair_geometry(self, self.num_layers),
            "needs_boxes": self.needs_boxes and self.num_layers > 0,
            "as_printed": self.reading == "paper",
        }

    def _create_layer(self, layer: int) -> RefinerLayer:
        from legenda.attention.builders import create_self_attention
        from legenda.models.aoanet.encoder import RefinerLayer

        as_printed = self.reading == "paper"
        return RefinerLayer(
            create_self_attention(
                self,
                self.dim,
                self.num_heads,
                layer=layer,
                dropout=self.attention_dropout,
                inner_dim=self.attended_dim,
                output=not self.refiner_aoa,
                bias=not as_printed,
            ),
            self.dim,
            norm=self._create_norm(),
            attended_dim=self.attended_dim,
            as_printed=as_printed,
            aoa_dropout=self.aoa_dropout if self.refiner_aoa else None,
            dropout=self.attention_dropout,
            ff_dim=self.ff_dim if self.refiner_ff else None,
            ff_norm=self._create_norm() if self.refiner_ff else None,
        )

    def _create_norm(self) -> nn.Module:
        from torch import nn

        from legenda.attention.normalization import StdLayerNorm

        return nn.LayerNorm(self.dim) if self.reading == "paper" else StdLayerNorm(self.dim)

    def decoder_arguments(self) -> dict[str, Any]:
        """Return the arguments of the LSTM with attention on attention, or of the ablation that `context` names."""
        return {
            **self.values_of("vocab_size", "dim", "additive_dim", "context", "dropout", "attention_dropout"),
            "word_dim": self.word_channels,
            "num_heads": self.num_heads if self.multi_head else None,
            "attended_dim": self.attended_dim if self.multi_head else self.dim,
            "as_printed": self.reading == "paper",
            "context_dropout": self.dropout if self.context_dropout else 0.0,
        }
