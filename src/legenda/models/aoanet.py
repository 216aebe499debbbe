"""AoANet: regions refined by attention on attention (Huang et al., ICCV 2019); its decoder has a file of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeGuard

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from legenda.attention import (
    AttentionConfig,
    AttentionOnAttention,
    Geometry,
    MaskedBatchNorm,
    MultiHeadAttention,
    StdLayerNorm,
    create_pair_geometry,
    create_self_attention,
)
from legenda.decoding.generation_config import GenerationConfig
from legenda.errors import UserError
from legenda.models.aoanet_decoder import AoANetDecoder
from legenda.models.config import ModelConfig
from legenda.models.encoder import Encoder
from legenda.models.layers import FeedForward
from legenda.models.lstm import run_packed_lstm
from legenda.regions import Memory, Regions, masked_mean


@dataclass(frozen=True, kw_only=True)
class AoANetConfig(AttentionConfig, ModelConfig):
    """Sizes and switches of AoANet and its ablations; the defaults are those of the released code.

    The paper prints less than the release has: `reading="paper"` takes away the ReLU after the region and the word
    embedding, the normalisation before each layer of the refiner (it stands after the sum instead, Eq. 7) and of the
    decoder's query, and the biases of the attentions' projections and of the output layer; the projected query enters
    information and gate (Eq. 6).
    """

    dim: int = 1024
    """Channels inside the model."""
    word_dim: int | None = None
    """Channels of a word's embedding; as many as `dim` unless told."""
    num_heads: int = 8
    num_layers: int = 6
    """Layers of the refiner; 0 for none."""
    refiner_aoa: bool = True
    """Attention on attention in the refiner; without it the heads are projected as in a Transformer."""
    refiner_ff: bool = False
    """A feed-forward layer after each attention of the refiner."""
    ff_dim: int = 2048
    """Inner channels of that layer."""
    context: Literal["aoa", "lstm", "lstm_aoa", "linear"] = "aoa"
    """How the decoder makes its context vector of the attended regions and its state (Figure 7); linear is "base"."""
    multi_head: bool = True
    """Multi-head attention in the decoder; without it one additive head."""
    additive_dim: int = 512
    """Inner channels of the additive attention."""
    multi_head_scale: int = 1
    """The channels of all heads together are `dim` times this."""
    use_bn: int = 0
    """Batch normalisation of the regions: 0 none, 1 before their embedding, 2 before and after it."""
    mean_feats: bool = True
    """The global vector is the mean of the refined regions; without it, it is an embedding of the picture's own."""
    reading: Literal["released", "paper"] = "released"
    """Which of the two is followed where they differ."""
    dropout: float = 0.5
    """Of embeddings and of the context before the output layer."""
    aoa_dropout: float = 0.3
    """Of the input of attention on attention in the refiner."""
    attention_dropout: float = 0.1
    """Of attention weights, and of what each layer of the refiner adds."""
    recurrent: bool = False
    """The regions are frames of a video in their order, and an LSTM reads them in both directions before anything else
    refines them, with half of the channels each way (section 4.6)."""
    context_dropout: bool = True
    """Dropout also where the context enters the next step."""

    def __post_init__(self) -> None:
        self.require_positive(
            "num_heads", "ff_dim", "additive_dim", "multi_head_scale", "geometry_dim", "word_channels"
        )
        self.require_probabilities("dropout", "aoa_dropout", "attention_dropout")
        if self.num_layers < 0:
            raise UserError(f"num_layers must be 0 or more, not {self.num_layers}")
        if self.dim * self.multi_head_scale % self.num_heads:
            raise UserError(f"dim={self.dim} must be a multiple of num_heads={self.num_heads}")
        if self.use_bn not in (0, 1, 2):
            raise UserError(f"use_bn must be 0, 1 or 2, not {self.use_bn}")
        if self.multi_head_scale > 1 and not self.multi_head:
            raise UserError("multi_head_scale above 1 needs multi_head")
        if self.geometry == "absolute":
            raise UserError("geometry='absolute' belongs to the Transformer; choose query, key or content")
        if self.reading == "paper" and (self.branches > 1 or self.branch_residual or self.attention == "x_linear"):
            raise UserError(
                "reading='paper' gates with the projected query of a single attention; leave out its options"
            )
        if self.recurrent and self.dim % 2:
            raise UserError(f"recurrent=True needs an even dim, not {self.dim}")
        self.check(self.dim)

    @property
    def word_channels(self) -> int:
        """Channels of a word's embedding."""
        return self.dim if self.word_dim is None else self.word_dim

    @property
    def attended_dim(self) -> int:
        """Channels of what all heads of one attention give together."""
        return self.dim * self.multi_head_scale

    @property
    def generation_config(self) -> GenerationConfig:
        """Finished captions leave the beam; 20 words at most (section 5 of the release's beam search)."""
        return GenerationConfig(finished_beams="release", max_length=20)

    def build_encoder(self) -> AoANetEncoder:
        """Region embedding and refiner."""
        return AoANetEncoder(self)

    def build_decoder(self) -> AoANetDecoder:
        """The LSTM with attention on attention, or the ablation of it that `context` names."""
        return AoANetDecoder(self)


class RefinerLayer(nn.Module):
    """Self-attention among regions whose result each region's own query gates (Figure 4), or Figure 6a without."""

    def __init__(self, config: AoANetConfig, layer: int) -> None:
        super().__init__()
        D = config.dim
        self.paper = config.reading == "paper"
        self.norm = _norm(config)
        self.attention = create_self_attention(
            config,
            D,
            config.num_heads,
            layer=layer,
            dropout=config.attention_dropout,
            inner_dim=config.attended_dim,
            output=not config.refiner_aoa,
            bias=not self.paper,
        )
        query_dim = config.attended_dim if self.paper else D
        self.aoa = (
            AttentionOnAttention(config.attended_dim, query_dim, D, dropout=config.aoa_dropout)
            if config.refiner_aoa
            else None
        )
        self.dropout = nn.Dropout(config.attention_dropout)
        self.feed_forward = FeedForward(D, config.ff_dim, config.attention_dropout) if config.refiner_ff else None
        self.feed_forward_norm = _norm(config) if config.refiner_ff else None

    def forward(
        self, x: Float[Tensor, "B N D"], mask: Bool[Tensor, "B N"], geometry: Geometry
    ) -> Float[Tensor, "B N D"]:
        """The regions after this layer."""
        x = self._around(self.norm, x, lambda y: self._attend(y, mask, geometry))
        if self.feed_forward is not None and self.feed_forward_norm is not None:
            x = self._around(self.feed_forward_norm, x, self.feed_forward)
        return x

    def _around(self, norm: nn.Module, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Released: x + f(norm(x)); as printed: norm(x + f(x)) (Eq. 7)."""
        if self.paper:
            return norm(x + self.dropout(sublayer(x)))
        return x + self.dropout(sublayer(norm(x)))

    def _attend(self, y: Tensor, mask: Tensor, geometry: Geometry) -> Tensor:
        attended = self.attention(y, y, y, mask, geometry).values
        if self.aoa is None:
            return attended
        if self.paper and isinstance(self.attention, MultiHeadAttention):
            y = self.attention.query(y)
        return self.aoa(attended, y)


class AoANetEncoder(Encoder):
    """Embedded regions, refined layer by layer, and a vector of the whole picture (section 3.2.1)."""

    def __init__(self, config: AoANetConfig) -> None:
        super().__init__()
        self.needs_boxes = config.needs_boxes and config.num_layers > 0
        self.paper = config.reading == "paper"
        self.input_norm = MaskedBatchNorm(config.feature_dim) if config.use_bn else None
        self.input = nn.Linear(config.feature_dim, config.dim)
        self.embedded_norm = MaskedBatchNorm(config.dim) if config.use_bn == 2 else None
        self.dropout = nn.Dropout(config.dropout)
        self.frames = (
            nn.LSTM(config.dim, config.dim // 2, batch_first=True, bidirectional=True) if config.recurrent else None
        )
        self.layers = nn.ModuleList(RefinerLayer(config, layer) for layer in range(config.num_layers))
        self.norm = StdLayerNorm(config.dim) if config.num_layers and not self.paper else None
        self.geometry = create_pair_geometry(config, config.num_layers)
        self.pooled = None if config.mean_feats else nn.Linear(config.feature_dim, config.dim)
        if not self.paper:
            self._begin_alike()

    def forward(self, regions: Regions) -> Memory:
        """Refined regions and their mean, or the embedding of the picture's own vector."""
        mask = regions.mask_or_ones
        padding = ~mask.unsqueeze(-1)
        features = regions.features.masked_fill(padding, 0.0)
        x = features if self.input_norm is None else self.input_norm(features, mask)
        x = self.input(x)
        x = self.dropout(x if self.paper else F.relu(x))
        if self.embedded_norm is not None:
            x = self.embedded_norm(x, mask)
        x = x.masked_fill(padding, 0.0)
        if self.frames is not None:
            x = run_packed_lstm(self.frames, x, mask)
        for layer, geometry in zip(self.layers, self.geometry(regions), strict=True):
            x = layer(x, mask, geometry)
        if self.norm is not None:
            x = self.norm(x)
        return Memory(x, mask, self._pool(regions, features, x))

    def remove_global_branch(self) -> None:
        """Leaves out the embedding of the picture's own vector."""
        self.pooled = None

    def _pool(self, regions: Regions, features: Tensor, x: Tensor) -> Tensor:
        if self.pooled is None:
            return masked_mean(x, regions.mask_or_ones)
        vector = regions.global_feature
        if vector is None:
            vector = masked_mean(features, regions.mask_or_ones)
        return self.dropout(F.relu(self.pooled(vector)))

    @torch.no_grad()
    def _begin_alike(self) -> None:
        """The release copies one layer six times, and in it one matrix for queries, keys and values."""
        for layer in self.layers:
            for attention in filter(_is_square, layer.modules()):
                attention.key.load_state_dict(attention.query.state_dict())
                attention.value.load_state_dict(attention.query.state_dict())
        for layer in list(self.layers)[1:]:
            if layer.state_dict().keys() == self.layers[0].state_dict().keys():  # unless some have fewer branches
                layer.load_state_dict(self.layers[0].state_dict())


def _is_square(module: nn.Module) -> TypeGuard[MultiHeadAttention]:
    """Whether queries, keys and values of an attention are equally wide."""
    return isinstance(module, MultiHeadAttention) and module.query.weight.shape == module.value.weight.shape


def _norm(config: AoANetConfig) -> nn.Module:
    return nn.LayerNorm(config.dim) if config.reading == "paper" else StdLayerNorm(config.dim)
