"""X-LAN: X-Linear attention in encoder and decoder (Pan et al., CVPR 2020); X-Transformer has the same encoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from pydantic import model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from legenda.attention import AdditiveAttention
from legenda.attention.multi_head import Dropout
from legenda.attention.x_linear import Act, XLinearAttention, create_act
from legenda.config import Count, NonNegativeCount, PositiveFloat, PositiveInt, Probability
from legenda.decoding.generation import Decoder, RowState
from legenda.errors import ConfigError
from legenda.models.base import CaptionerConfig, Encoder
from legenda.models.layers import PostNormFeedForward, WordLSTM
from legenda.models.packing import LinearMap, SplitLinear
from legenda.models.recurrent import RecurrentDecoder
from legenda.regions import Memory, Regions, masked_mean


class XLinearConfig(CaptionerConfig):
    """Options of both models of the paper; the defaults are those of the released X-LAN."""

    generation: ClassVar[Mapping[str, object]] = {"max_length": 17}
    """Finished hypotheses keep their beams and are ranked by log-probability; at most 16 tokens and the end."""

    dim: PositiveInt = 1024
    """Channels inside the model."""
    num_heads: Count = 8
    mid_dim: PositiveInt | None = None
    """Channels of B' in each head (D_c); half of the head's by default."""
    num_layers: NonNegativeCount = 4
    """X-Linear blocks of the encoder; 0 for none."""
    decoder_layers: Count = 1
    """X-Linear blocks of the decoder, or its layers."""
    act: Act = "celu"
    """Activation of query, key and value inside the blocks: "celu", the paper's ELU, or "relu", as in the rows of Table
    3 without it."""
    alpha: PositiveFloat = 1.3
    """Alpha of the CELU, its negative saturation value."""
    region_act: Act = "celu"
    """Activation of the region embedding."""
    region_norm: bool = False
    """Layer normalization in the region embedding."""
    region_dropout: Probability = 0.5
    """Dropout rate of the embedded regions."""
    mid_dropout: Probability = 0.1
    """Dropout rate of B' inside the blocks."""
    encoder_dropout: Probability = 0.5
    """Dropout rate of an encoder block's output."""
    update_dropout: Probability = 0.3
    """Dropout rate of the update of each region by the attended vector (Eq. 8)."""
    word_dropout: Probability = 0.5
    """Dropout rate of the token embeddings."""
    decoder_dropout: Probability = 0.5
    """Dropout rate of a decoder block's output."""
    output_dropout: Probability = 0.5
    """Dropout rate before the output layer; the release has 0 while it samples captions for self-critical training."""

    @model_validator(mode="after")
    def _check_x_linear(self) -> XLinearConfig:
        if self.dim % self.num_heads:
            raise ConfigError(f"dim={self.dim} must be a multiple of num_heads={self.num_heads}")
        if self.mid_channels < 1:
            raise ConfigError(
                f"dim={self.dim} is too small for num_heads={self.num_heads}: B' has half of a head's channels, so "
                "none; set mid_dim"
            )
        return self

    @property
    def is_released(self) -> bool:
        """Whether the released code is followed where the paper differs."""
        return True

    @property
    def mid_channels(self) -> int:
        """Channels of B' in each head."""
        return self.dim // self.num_heads // 2 if self.mid_dim is None else self.mid_dim

    def build_encoder(self) -> Encoder:
        """Return a new encoder with random weights."""
        return XLinearEncoder(self)

    def build_block(self) -> XLinearAttention:
        """Return a new X-Linear block with random weights."""
        return XLinearAttention(
            self.dim,
            self.num_heads,
            mid_dim=self.mid_channels,
            act=self.act,
            alpha=self.alpha,
            norm=self.is_released,
            bias=self.is_released,
            dropout=self.mid_dropout,
        )


class ConcatUpdate(SplitLinear):
    """LayerNorm(ReLU(W [attended, x]) + x): update of keys, values or tokens after a block (Eq. 8)."""

    def __init__(self, dim: int, *, bias: bool, dropout: float) -> None:
        super().__init__()
        self.linear = nn.Linear(2 * dim, dim, bias=bias)
        self.dropout = Dropout(dropout)
        self.norm = nn.LayerNorm(dim)

    def parts(self) -> list[tuple[Tensor, Tensor | None]]:
        """Return the weights of the attended vector (with the bias) and of x."""
        w_attended, w_x = self.linear.weight.chunk(2, dim=1)
        return [(w_attended, self.linear.bias), (w_x, None)]

    def forward(self, attended: Float[Tensor, "*#rows D"], x: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows D"]:
        """Return the updated x; one attended vector may serve all x of an image, and is then multiplied once."""
        map_attended, map_x = self.linear_maps()
        return self.norm(x + self.dropout(F.relu(map_attended(attended) + map_x(x))))


class XLinearLayer(nn.Module):
    """An X-Linear block queried by the image's vector (Eq. 7), and the update of keys and values (Eq. 8)."""

    def __init__(self, config: XLinearConfig, *, update_keys: bool) -> None:
        """Create the layer; update_keys: whether keys have an update apart from that of the values (the paper)."""
        super().__init__()
        self.attention = config.build_block()
        self.dropout = Dropout(config.encoder_dropout)
        self.update_values = ConcatUpdate(config.dim, bias=config.is_released, dropout=config.update_dropout)
        self.update_keys = None
        if update_keys:
            self.update_keys = ConcatUpdate(config.dim, bias=config.is_released, dropout=config.update_dropout)

    def forward(
        self,
        attended: Float[Tensor, "B D"],
        keys: Float[Tensor, "B N D"],
        values: Float[Tensor, "B N D"],
        attention_mask: Bool[Tensor, "B N"],
    ) -> tuple[Float[Tensor, "B D"], Float[Tensor, "B N D"], Float[Tensor, "B N D"]]:
        """Return the next query, keys and values."""
        output = self.dropout(self.attention(attended.unsqueeze(1), keys, values, attention_mask).values)
        values = self.update_values(output, values)
        keys = values if self.update_keys is None else self.update_keys(output, keys)
        return output.squeeze(1), keys, values


class XLinearEncoder(Encoder):
    """Region embedding, L layers queried by the mean region, and a global feature of all their outputs (Eq. 10)."""

    def __init__(self, config: XLinearConfig, *, ff_dim: int | None = None, ff_dropout: float = 0.0) -> None:
        """Create the layers.

        ff_dim: inner channels of a feed-forward network after each of them, as in X-Transformer; None for none.
        """
        super().__init__()
        dim, num_layers = config.dim, config.num_layers
        self.input = nn.Linear(config.feature_dim, dim)
        self.act = create_act(config.region_act, config.alpha)
        self.norm = nn.LayerNorm(dim) if config.region_norm else nn.Identity()
        self.norm_first = ff_dim is not None
        self.dropout = Dropout(config.region_dropout)
        self.layers = nn.ModuleList(
            # the last layer's keys are not read
            XLinearLayer(config, update_keys=not config.is_released and layer < num_layers - 1)
            for layer in range(num_layers)
        )
        self.feed_forward = nn.ModuleList(
            PostNormFeedForward(dim, ff_dim, ff_dropout) for _ in range(num_layers) if ff_dim is not None
        )
        self.global_feature: nn.Linear | None = nn.Linear((num_layers + 1) * dim, dim, bias=config.is_released)
        self.global_norm: nn.Module | None = nn.LayerNorm(dim) if config.is_released else nn.Identity()

    def remove_global_branch(self) -> None:
        """Delete the layer of Eq. 10."""
        self.global_feature = self.global_norm = None

    def forward(self, regions: Regions) -> Memory:
        """Return the last values as states, and the global feature; states of padding are finite."""
        mask = regions.mask_or_ones
        # padding may hold NaN, which a mask of the scores does not remove
        x = self.act(self.input(regions.features.masked_fill(~mask.unsqueeze(-1), 0.0)))
        x = self.dropout(self.norm(x)) if self.norm_first else self.norm(self.dropout(x))
        attended = masked_mean(x, mask)
        keys, outputs = x, [attended]
        for index, layer in enumerate(self.layers):
            attended, keys, x = layer(attended, keys, x, mask)
            if self.feed_forward:
                keys = x = self.feed_forward[index](x)
            outputs.append(attended)
        if self.global_feature is None or self.global_norm is None:
            return Memory(x, mask, masked_mean(x, mask))
        return Memory(x, mask, self.global_norm(self.global_feature(torch.cat(outputs, dim=-1))))


class XLanConfig(XLinearConfig):
    """Options of X-LAN and the rows of its Table 3; the defaults are those of the released code.

    `variant="paper"` follows the equations as printed: no normalization and no biases in the X-Linear blocks, no biases
    in Eqs. 8 and 10, no normalization after Eq. 10, and no layer with normalization between attention and GLU. Keys and
    values have separate updates (Eq. 8; the last layer's keys are not read and have none), and the LSTM reads the
    concatenation of embedding, global feature and context instead of the embedding and the sum of the other two
    (section 3.3.3). By default it has one head of 1,024 channels with D_c = 512 (section 4.1), the plain ELU (alpha
    1), and no activation after the embedding of regions and tokens. Dropout, which the paper does not mention, stays.
    """

    paper_defaults: ClassVar[Mapping[str, object]] = {
        "num_heads": 1,
        "alpha": 1.0,
        "region_act": "none",
        "word_act": "none",
    }

    variant: Literal["released", "paper"] = "released"
    """Whether the released code or the paper is followed where they differ."""
    attention: Literal["x_linear", "conventional"] = "x_linear"
    """The decoder's attention: X-Linear blocks, or the additive attention of Eq. 1 (Table 3, base)."""
    word_act: Act = "celu"
    """Activation of the token embedding."""
    context_dropout: Probability = 0.5
    """Dropout rate of the context as input of the next step."""

    @property
    def is_released(self) -> bool:
        """Whether the released code is followed where the paper differs."""
        return self.variant == "released"

    def build_decoder(self) -> Decoder:
        """Return a new decoder with random weights."""
        return XLanDecoder(self)

    def build_attention(self) -> XLinearAttention | AdditiveAttention:
        """Return a new attention of the decoder with random weights."""
        if self.attention == "x_linear":
            return self.build_block()
        return AdditiveAttention(self.dim, self.dim, self.num_heads * self.mid_channels)


@dataclass(frozen=True, eq=False)
class XLanState(RowState):
    """Hidden state, cell and context of every row.

    image_gates: the part of the gates that the global feature contributes. attention: weights of the last step over the
    regions.
    """

    shared: ClassVar[tuple[str, ...]] = ("image_gates",)

    image_gates: Float[Tensor, "B gates"]
    hidden: Float[Tensor, "B K D"]
    cell: Float[Tensor, "B K D"]
    context: Float[Tensor, "B K D"]
    attention: Float[Tensor, "B K H N"] | None = None


class XLanDecoder(RecurrentDecoder[XLanState]):
    """An LSTM over embedding, global feature and context; attention queried by its state; the next context by GLU."""

    attention: Any

    def __init__(self, config: XLanConfig) -> None:
        super().__init__()
        dim, num_layers = config.dim, config.decoder_layers
        self.dim = dim
        self.embedding = nn.Embedding(config.vocab_size, dim)
        self.act = create_act(config.word_act, config.alpha)
        self.word_dropout = Dropout(config.word_dropout)
        self.context_dropout = Dropout(config.context_dropout)
        # as released the LSTM reads the sum of global feature and context, so both have the same weights
        self.lstm = WordLSTM([dim, dim] if config.is_released else [dim, dim, dim], dim)
        self.attention = nn.ModuleList(config.build_attention() for _ in range(num_layers))
        self.dropout = Dropout(config.decoder_dropout)
        self.concat = None
        if config.is_released:
            self.concat = nn.Sequential(nn.Linear((num_layers + 1) * dim, dim), nn.LayerNorm(dim))
        self.to_context = nn.Linear(2 * dim, 2 * dim)
        self.output_dropout = Dropout(config.output_dropout)
        self.output = nn.Linear(dim, config.vocab_size)

    def precompute_cross_kv(self, memory: Memory) -> Memory:
        """Compute keys and values of the regions for each block, shared by all rows."""
        cross_kv = (attention.keys_values(memory.states, memory.states) for attention in self.attention)
        return replace(memory, cross_kv=tuple(cross_kv))

    def maps(self) -> tuple[Sequence[LinearMap], Sequence[LinearMap]]:
        """Return the maps of words and image to the gates, those of context and hidden state, and of the context."""
        words, image, *context, hidden = self.lstm.linear_maps()
        to_context = [self.to_context] if self.concat is None else [self.to_context, self.concat[0]]
        return (words, image), (context[0] if context else image, hidden, *to_context)

    def start(self, memory: Memory, num_rows: int, once: Sequence[LinearMap]) -> XLanState:
        """Return zeros, and the gates of the global feature."""
        zeros = memory.states.new_zeros(memory.mask.shape[0], num_rows, self.dim)
        return XLanState(once[1](memory.global_feature), zeros, zeros, zeros)

    def embed(self, tokens: Int[Tensor, "*rows"]) -> Float[Tensor, "*rows D"]:
        """Return the embeddings of words as input of the LSTM."""
        return self.word_dropout(self.act(self.embedding(tokens)))

    def read(self, state: XLanState) -> Float[Tensor, "B K D"]:
        """Return the context."""
        return state.context

    def logits(self, x: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows V"]:
        """Return the logits of contexts."""
        return self.output(self.output_dropout(x))

    def recur(
        self,
        gates: Float[Tensor, "B K gates"],
        state: XLanState,
        memory: Memory,
        maps: Sequence[LinearMap],
        *,
        need_weights: bool,  # noqa: ARG002
    ) -> XLanState:
        """Return the state after one position of all rows, always with attention weights."""
        context = self.context_dropout(state.context)
        gates = gates + state.image_gates.unsqueeze(1)
        hidden, cell = self.lstm.step(gates, context, state.hidden, state.cell, maps[:2])
        query, outputs, attention_weights = hidden, [hidden], None
        for attention, (keys, values) in zip(self.attention, memory.cross_kv, strict=True):
            attended = attention.attend(attention.queries(query), keys, values, memory.mask)
            query, attention_weights = self.dropout(attended.values), attended.weights
            outputs.append(query)
        attended = query if self.concat is None else self.concat[1](maps[3](torch.cat(outputs, dim=-1)))
        context = F.glu(maps[2](torch.cat([attended, hidden], dim=-1)))
        shown = None if attention_weights is None else attention_weights.transpose(1, 2)
        return XLanState(state.image_gates, hidden, cell, context, shown)
