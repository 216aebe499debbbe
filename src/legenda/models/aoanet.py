"""AoANet: regions refined by attention on attention, and an LSTM that attends to them (Huang et al., ICCV 2019)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from pydantic import model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from legenda.attention import (
    AdditiveAttention,
    AttentionConfig,
    AttentionOnAttention,
    Geometry,
    MaskedBatchNorm,
    MultiHeadAttention,
    PairGeometry,
    StdLayerNorm,
)
from legenda.attention.geometry import BOX_EMBEDDINGS
from legenda.attention.multi_head import Dropout
from legenda.config import Count, NonNegativeCount, PositiveInt, Probability
from legenda.decoding.generation import Decoder, RowState
from legenda.errors import ConfigError, DataError
from legenda.models.base import CaptionerConfig, Encoder
from legenda.models.layers import FeedForward, WordLSTM, run_packed_lstm
from legenda.models.packing import LinearMap
from legenda.models.recurrent import RecurrentDecoder
from legenda.regions import Memory, Regions, masked_mean


class AoANetConfig(AttentionConfig, CaptionerConfig):
    """Options of AoANet and its ablations; the defaults are those of the released code.

    `variant="paper"` follows the equations as printed: no ReLU after region and word embeddings and after the linear
    context of "base" (section 4.4), normalization after each layer of the refiner (Eq. 7) instead of before it, none of
    the decoder's query, no biases in the projections of attention and in the output layer, and the projected query in
    information and gate (Eq. 6). By default it has dropout of embeddings and of the output layer's input alone.
    """

    generation: ClassVar[Mapping[str, object]] = {"finished_beams": "release", "max_length": 20}
    """Finished hypotheses leave the beam; at most 20 tokens, as in the release."""

    paper_defaults: ClassVar[Mapping[str, object]] = {
        "aoa_dropout": 0.0,
        "attention_dropout": 0.0,
        "context_dropout": False,
    }

    dim: PositiveInt = 1024
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
    """How the decoder computes the context from attended regions and hidden state (Figure 7); linear is "base", which
    the release follows by a ReLU."""
    multi_head: bool = True
    """Multi-head attention in the decoder; otherwise one additive head."""
    additive_dim: PositiveInt = 512
    """Inner channels of the additive attention."""
    multi_head_scale: Count = 1
    """The channels of all heads together are `dim` times this."""
    use_bn: Literal[0, 1, 2] = 0
    """Batch normalization of the regions: 0 none, 1 before their embedding, 2 before and after it."""
    mean_feats: bool = True
    """The global feature is the mean of the refined regions; otherwise an embedding of the image's feature."""
    variant: Literal["released", "paper"] = "released"
    """Whether the released code or the paper is followed where they differ."""
    dropout: Probability = 0.5
    """Dropout rate of the embeddings and of the context before the output layer."""
    aoa_dropout: Probability = 0.3
    """Dropout rate of the input of attention on attention in the refiner."""
    attention_dropout: Probability = 0.1
    """Dropout rate of the attention weights and of each sublayer's output in the refiner."""
    recurrent: bool = False
    """The regions are frames of a video in their order, and a bidirectional LSTM precedes the refiner, with half of the
    channels in each direction (section 4.6)."""
    context_dropout: bool = True
    """Dropout also of the context as input of the next step."""

    @model_validator(mode="after")
    def _check_aoanet(self) -> AoANetConfig:
        if self.dim * self.multi_head_scale % self.num_heads:
            raise ConfigError(f"dim={self.dim} must be a multiple of num_heads={self.num_heads}")
        if self.multi_head_scale > 1 and not self.multi_head:
            raise ConfigError("multi_head_scale above 1 needs multi_head")
        if self.geometry in BOX_EMBEDDINGS:
            raise ConfigError(f"geometry={self.geometry!r} belongs to the Transformer; choose query, key or content")
        if self.variant == "paper" and (self.branches > 1 or self.branch_residual or self.attention != "multi_head"):
            raise ConfigError(
                "variant='paper' gates with the projected query of a single attention; leave out its options"
            )
        if self.recurrent and self.dim % 2:
            raise ConfigError(f"recurrent=True needs an even dim, not {self.dim}")
        if self.recurrent and self.drop_region:
            raise ConfigError("recurrent=True reads every frame of a video; leave out drop_region")
        self.check(self.dim, self.num_layers)
        return self

    @property
    def attended_dim(self) -> int:
        """Channels of all heads of one attention."""
        return self.dim * self.multi_head_scale

    def build_encoder(self) -> Encoder:
        """Return a new encoder with random weights."""
        return AoANetEncoder(self)

    def build_decoder(self) -> Decoder:
        """Return a new decoder with random weights."""
        return AoANetDecoder(self)


class RefinerLayer(nn.Module):
    """Self-attention among regions, gated by each region's query (Figure 4) or not (Figure 6a)."""

    def __init__(self, config: AoANetConfig, layer: int) -> None:
        """Create the layer, counted from 0."""
        super().__init__()
        dim, attended_dim, self.variant = config.dim, config.attended_dim, config.variant
        self.norm = self._build_norm(dim)
        rate, output, bias = config.attention_dropout, not config.refiner_aoa, self.variant == "released"
        self.attention = config.build_attention(
            dim, config.num_heads, layer=layer, dropout=rate, inner_dim=attended_dim, output=output, bias=bias
        )
        self.aoa = None
        if config.refiner_aoa:
            query_dim = dim
            if self.variant == "paper":
                assert isinstance(self.attention, MultiHeadAttention)  # by AoANetConfig
                query_dim = self.attention.query.out_features
            self.aoa = AttentionOnAttention(attended_dim, query_dim, dim, dropout=config.aoa_dropout)
        self.dropout = Dropout(config.attention_dropout)
        self.feed_forward = FeedForward(dim, config.ff_dim, config.attention_dropout) if config.refiner_ff else None
        self.feed_forward_norm = self._build_norm(dim) if config.refiner_ff else None

    def forward(
        self, x: Float[Tensor, "B N D"], attention_mask: Bool[Tensor, "B N"], geometry: Geometry
    ) -> Float[Tensor, "B N D"]:
        """Return the regions after this layer."""
        x = self._residual(self.norm, x, lambda y: self._attend(y, attention_mask, geometry))
        if self.feed_forward is not None and self.feed_forward_norm is not None:
            x = self._residual(self.feed_forward_norm, x, self.feed_forward)
        return x

    def _build_norm(self, dim: int) -> nn.Module:
        return nn.LayerNorm(dim) if self.variant == "paper" else StdLayerNorm(dim)

    def _residual(self, norm: nn.Module, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Return x + f(norm(x)) as released, or norm(x + f(x)) of the paper (Eq. 7)."""
        if self.variant == "paper":
            return norm(x + self.dropout(sublayer(x)))
        return x + self.dropout(sublayer(norm(x)))

    def _attend(self, y: Tensor, attention_mask: Tensor, geometry: Geometry) -> Tensor:
        attended = self.attention(y, y, y, attention_mask, geometry).values
        if self.aoa is None:
            return attended
        if self.variant == "paper" and isinstance(self.attention, MultiHeadAttention):
            y = self.attention.query(y)
        return self.aoa(attended, y)


class AoANetEncoder(Encoder):
    """Embedded regions, L refining layers, and a global feature (section 3.2.1)."""

    def __init__(self, config: AoANetConfig) -> None:
        super().__init__()
        dim, self.variant = config.dim, config.variant
        self.needs_boxes = config.needs_boxes and config.num_layers > 0
        self.input_norm = MaskedBatchNorm(config.feature_dim) if config.use_bn else None
        self.input = nn.Linear(config.feature_dim, dim)
        self.embedded_norm = MaskedBatchNorm(dim) if config.use_bn == 2 else None
        self.dropout = Dropout(config.dropout)
        self.frames = nn.LSTM(dim, dim // 2, batch_first=True, bidirectional=True) if config.recurrent else None
        self.layers = nn.ModuleList(RefinerLayer(config, layer) for layer in range(config.num_layers))
        self.norm = StdLayerNorm(dim) if config.num_layers and self.variant == "released" else None
        self.geometry = PairGeometry(config, config.num_layers)
        self.global_embedding = None if config.mean_feats else nn.Linear(config.feature_dim, dim)
        if self.variant == "released":
            self._copy_first_layer()

    def forward(self, regions: Regions) -> Memory:
        """Return refined regions and, as global feature, their mean or the embedding of the image's feature."""
        mask = regions.mask_or_ones
        padding = ~mask.unsqueeze(-1)
        features = regions.features.masked_fill(padding, 0.0)
        x = features if self.input_norm is None else self.input_norm(features, mask)
        x = self.input(x)
        x = self.dropout(x if self.variant == "paper" else F.relu(x))
        if self.embedded_norm is not None:
            x = self.embedded_norm(x, mask)
        x = x.masked_fill(padding, 0.0)
        if self.frames is not None:
            x = run_packed_lstm(self.frames, x, mask)
        for layer, geometry in zip(self.layers, self.geometry(regions), strict=True):
            x = layer(x, mask, geometry)
        if self.norm is not None:
            x = self.norm(x)
        return Memory(x, mask, self._global_feature(regions, features, x))

    def remove_global_branch(self) -> None:
        """Delete the embedding of the image's feature."""
        self.global_embedding = None

    def _global_feature(self, regions: Regions, features: Tensor, x: Tensor) -> Tensor:
        if self.global_embedding is None:
            return masked_mean(x, regions.mask_or_ones)
        vector = regions.global_feature
        if vector is None:
            vector = masked_mean(features, regions.mask_or_ones)
        if vector.shape[1] != features.shape[2]:
            raise DataError(
                f"the global feature has {vector.shape[1]} channels but this model reads {features.shape[2]}, as many "
                "as in the features of regions; use those of one extractor, or create it with mean_feats=True"
            )
        return self.dropout(F.relu(self.global_embedding(vector)))

    @torch.no_grad()
    def _copy_first_layer(self) -> None:
        """Copy initial weights as the release does: one layer for all, one matrix for queries, keys and values."""
        for layer in self.layers:
            for part in layer.modules():
                if isinstance(part, MultiHeadAttention) and part.query.weight.shape == part.value.weight.shape:
                    part.key.load_state_dict(part.query.state_dict())
                    part.value.load_state_dict(part.query.state_dict())
        for layer in list(self.layers)[1:]:
            if layer.state_dict().keys() == self.layers[0].state_dict().keys():  # unless some have fewer branches
                layer.load_state_dict(self.layers[0].state_dict())


@dataclass(frozen=True, eq=False)
class AoANetState(RowState):
    """Hidden state and cell of the LSTM, the context, and hidden state and cell of a second LSTM, all `(B, K, D)`.

    attention: weights of the last step over the regions.
    """

    hidden: Float[Tensor, "B K D"]
    cell: Float[Tensor, "B K D"]
    context: Float[Tensor, "B K D"]
    second: tuple[Tensor, Tensor] | None
    attention: Float[Tensor, "B K H N"] | None = None


class AoANetDecoder(RecurrentDecoder[AoANetState]):
    """An LSTM over embedding, global feature and last context; attention to the regions; the context vector."""

    attention: MultiHeadAttention | AdditiveAttention
    aoa: AttentionOnAttention | None

    def __init__(self, config: AoANetConfig) -> None:
        super().__init__()
        dim, word_dim, is_released = config.dim, config.word_dim or config.dim, config.variant == "released"
        attended_dim = config.attended_dim if config.multi_head else dim
        self.dim, self.variant = dim, config.variant
        self.embedding = nn.Embedding(config.vocab_size, word_dim)
        self.dropout = Dropout(config.dropout)
        self.context_dropout = Dropout(config.dropout if config.context_dropout else 0.0)
        self.lstm = WordLSTM([word_dim, dim], dim)
        self.query_norm = StdLayerNorm(dim) if config.multi_head and is_released else None
        if config.multi_head:
            heads, p = config.num_heads, config.attention_dropout
            self.attention = MultiHeadAttention(
                dim, heads, dropout=p, inner_dim=attended_dim, output=False, bias=is_released
            )
        else:
            self.attention = AdditiveAttention(dim, dim, config.additive_dim)
        self.linear = nn.Linear(attended_dim + dim, dim) if config.context == "linear" else None
        self.second_lstm = nn.LSTMCell(attended_dim + dim, dim) if config.context.startswith("lstm") else None
        if config.context == "aoa":
            query_dim = attended_dim if config.multi_head and not is_released else dim
            self.aoa = AttentionOnAttention(attended_dim, query_dim, dim)
        else:
            self.aoa = AttentionOnAttention(dim, dim, dim) if config.context == "lstm_aoa" else None
        self.output = nn.Linear(dim, config.vocab_size, bias=is_released)

    def precompute_cross_kv(self, memory: Memory) -> Memory:
        """Compute keys and values of the regions, shared by all rows; values of additive attention are the regions."""
        return replace(memory, cross_kv=(self.attention.keys_values(memory.states, memory.states),))

    def start(self, memory: Memory, num_rows: int, once: Sequence[LinearMap]) -> AoANetState:  # noqa: ARG002
        """Return zeros."""
        zeros = memory.states.new_zeros(memory.mask.shape[0], num_rows, self.dim)
        return AoANetState(zeros, zeros, zeros, None if self.second_lstm is None else (zeros, zeros))

    def maps(self) -> tuple[Sequence[LinearMap], Sequence[LinearMap]]:
        """Return the map of words to the gates, and those of image and hidden state."""
        words, *others = self.lstm.linear_maps()
        return [words], others

    def embed(self, tokens: Int[Tensor, "*rows"]) -> Float[Tensor, "*rows D"]:
        """Return the embeddings of words as input of the LSTM."""
        words = self.embedding(tokens)
        return self.dropout(words if self.variant == "paper" else F.relu(words))

    def read(self, state: AoANetState) -> Float[Tensor, "B K D"]:
        """Return the context."""
        return state.context

    def logits(self, x: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows V"]:
        """Return the logits of contexts."""
        return self.output(self.dropout(x))

    def recur(
        self,
        gates: Float[Tensor, "B K gates"],
        state: AoANetState,
        memory: Memory,
        maps: Sequence[LinearMap],
        *,
        need_weights: bool,
    ) -> AoANetState:
        """Return the state after one position of all rows (Eqs. 12 to 14)."""
        image = memory.global_feature.unsqueeze(1) + self.context_dropout(state.context)
        hidden, cell = self.lstm.step(gates, image, state.hidden, state.cell, maps)
        queries = self.attention.queries(hidden if self.query_norm is None else self.query_norm(hidden))
        cross_kv, mask = memory.cross_kv[0], memory.mask
        attended, attention_weights = self.attention.attend(queries, *cross_kv, mask, need_weights=need_weights)
        second = None
        if self.linear is not None:
            context = self.linear(torch.cat([attended, hidden], dim=-1))
            context = context if self.variant == "paper" else F.relu(context)
        elif self.second_lstm is not None and state.second is not None:
            previous = tuple(part.flatten(0, 1) for part in state.second)
            current = self.second_lstm(torch.cat([attended, hidden], dim=-1).flatten(0, 1), previous)
            second = (current[0].view_as(hidden), current[1].view_as(hidden))
            context = second[0] if self.aoa is None else self.aoa(second[0], hidden)
        else:
            assert self.aoa is not None
            projected = self.variant == "paper" and isinstance(self.attention, MultiHeadAttention)
            context = self.aoa(attended, self.attention.query(hidden) if projected else hidden)
        attention = None if attention_weights is None else attention_weights.transpose(1, 2)
        return AoANetState(hidden, cell, context, second, attention)
