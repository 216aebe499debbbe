"""The Transformer from regions to captions (Guo et al., CVPR 2020).

SAN, N-SAN, G-SAN and NG-SAN are configurations of it, and the Object Relation Transformer (Herdade et al., 2019).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int
from pydantic import model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from legenda.attention import AttentionConfig, AttentionOutput, Geometry, MultiHeadAttention, PairGeometry, sinusoids
from legenda.attention.geometry import BOX_EMBEDDINGS, as_weights_of
from legenda.attention.multi_head import Dropout
from legenda.config import Count, PositiveInt, Probability
from legenda.decoding.generation import CacheLength, Decoder, RowState, append_kv, empty_kv
from legenda.errors import ConfigError
from legenda.models.base import CaptionerConfig, Encoder, ModelConfig
from legenda.models.layers import FeedForward, Positions, Residual, init_xavier_uniform_
from legenda.regions import Memory, Regions, masked_mean

__all__ = ["TransformerConfig"]

KeyValue = tuple[Tensor, Tensor]


class LayersConfig(AttentionConfig, ModelConfig):
    """Options of the layers of encoder and decoder, which captioners and translators share."""

    dim: PositiveInt = 512
    """Channels inside the model."""
    num_heads: Count = 8
    num_layers: Count = 6
    """Layers of the encoder, and of the decoder."""
    ff_dim: PositiveInt = 2048
    """Inner channels of the feed-forward networks."""
    dropout: Probability = 0.1
    """Dropout rate of embeddings, attention weights and each sublayer's output, and inside feed-forward networks."""
    norm_first: bool = False
    """Layer normalization before each sublayer instead of after it."""

    @model_validator(mode="after")
    def _check_layers(self) -> LayersConfig:
        if self.dim % self.num_heads or self.dim % 2:
            raise ConfigError(f"dim={self.dim} must be even and a multiple of num_heads={self.num_heads}")
        self.check(self.dim, self.num_layers)
        return self

    @property
    def inner_rate(self) -> float:
        """Dropout rate of the attention weights and inside the feed-forward networks."""
        return self.dropout

    @property
    def ends_with_norm(self) -> bool:
        """Whether a layer normalization follows the last layer of each stack."""
        return True

    @property
    def is_tied(self) -> bool:
        """Whether the output layer has the weights of the embedding, and no bias."""
        return False

    @property
    def output_bias(self) -> bool:
        """Whether an output layer of its own has a bias."""
        return True


class TransformerConfig(LayersConfig, CaptionerConfig):
    """Options of `transformer`, `nsan`, `gsan` and `ngsan`; the defaults are those of the paper (section 5.1).

    Where the paper is open: post-norm with a last normalization after each stack (as in PyTorch's Transformer), output
    layer not tied to the embedding, geometry embedded once for all layers.
    """

    num_layers: Count = 4
    """Layers of the encoder, and of the decoder."""
    tie_embeddings: bool = False
    """The output layer has the weights of the embedding, and no bias (Press and Wolf, 2017)."""
    ordered: bool = False
    """The regions are frames of a video in their order; the sinusoids of their positions are added to them."""

    @property
    def is_tied(self) -> bool:
        """Whether the output layer has the weights of the embedding, and no bias."""
        return self.tie_embeddings

    def build_encoder(self) -> Encoder:
        """Return a new encoder with random weights."""
        return TransformerEncoder(self)

    def build_decoder(self) -> Decoder:
        """Return a new decoder with random weights."""
        return TransformerDecoder(self)


class EncoderLayer(nn.Module):
    """Self-attention, of any kind, and a feed-forward network."""

    def __init__(self, config: LayersConfig, layer: int) -> None:
        """Create the layer, counted from 0."""
        super().__init__()
        dim, dropout = config.dim, config.dropout
        self.attention = config.build_attention(dim, config.num_heads, layer=layer, dropout=config.inner_rate)
        self.feed_forward = FeedForward(dim, config.ff_dim, config.inner_rate)
        self.attention_residual = Residual(dim, dropout, config.norm_first)
        self.feed_forward_residual = Residual(dim, dropout, config.norm_first)

    def forward(
        self, x: Float[Tensor, "B N D"], attention_mask: Bool[Tensor, "B N"], geometry: Geometry
    ) -> Float[Tensor, "B N D"]:
        """Return the regions after this layer."""
        normed = self.attention_residual.pre(x)
        attended = self.attention(normed, normed, normed, attention_mask, geometry).values
        x = self.attention_residual.post(x, attended)
        return self.feed_forward_residual.post(x, self.feed_forward(self.feed_forward_residual.pre(x)))


class TransformerEncoder(Encoder):
    """Linear, ReLU and L layers of self-attention over the regions (NG-SAN, section 3.2)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.needs_boxes = config.needs_boxes
        self.box_embedding = BOX_EMBEDDINGS.get(config.geometry)
        self.ordered = config.ordered
        self.input = nn.Linear(config.feature_dim, config.dim)
        self.dropout = Dropout(config.dropout)
        self.layers = nn.ModuleList(EncoderLayer(config, layer) for layer in range(config.num_layers))
        self.norm = nn.LayerNorm(config.dim) if config.ends_with_norm else nn.Identity()
        self.geometry = PairGeometry(config, config.num_layers)

    def reset_parameters(self) -> None:
        """Initialize all matrices from Xavier's uniform distribution."""
        init_xavier_uniform_(self)

    def forward(self, regions: Regions) -> Memory:
        """Return encoded regions; states of padding are finite."""
        mask = regions.mask_or_ones
        padding = ~mask.unsqueeze(-1)  # may hold NaN, which a mask of the scores does not remove
        x = F.relu(self.input(regions.features.masked_fill(padding, 0.0)))
        boxes = None if regions.boxes is None else regions.boxes.masked_fill(padding, 0.0)
        levels = [self._embed(x, boxes)]
        for layer, geometry in zip(self.layers, self.geometry(regions), strict=True):
            levels.append(layer(levels[-1], mask, geometry))
        return self._prepare_memory(levels[1:], mask)

    def _prepare_memory(self, levels: list[Tensor], mask: Bool[Tensor, "B N"]) -> Memory:
        """Return the memory of the layers' outputs, the first layer's first."""
        states = self.norm(levels[-1])
        return Memory(states, mask, masked_mean(states, mask))

    def _embed(self, x: Float[Tensor, "B N D"], boxes: Float[Tensor, "B N 4"] | None) -> Float[Tensor, "B N D"]:
        """Return the first layer's input for the output of the input layer."""
        return self.dropout(self._add_positions(x, boxes))

    def _add_positions(self, x: Float[Tensor, "B N D"], boxes: Float[Tensor, "B N 4"] | None) -> Float[Tensor, "B N D"]:
        """Return the regions plus the sinusoids of their order or the embedding of their boxes, where requested."""
        if self.ordered:
            x = x + _position_encodings(x, 0)
        if self.box_embedding is None:
            return x
        assert boxes is not None
        return x + as_weights_of(self.input, self.box_embedding(boxes, x.shape[-1]))


class DecoderLayer(nn.Module):
    """Self-attention over the tokens so far, cross-attention to the image, and a feed-forward network."""

    def __init__(self, config: LayersConfig) -> None:
        super().__init__()
        dim, num_heads, dropout, norm_first = config.dim, config.num_heads, config.dropout, config.norm_first
        self.self_attn = MultiHeadAttention(dim, num_heads, dropout=config.inner_rate)
        self.cross_attn = MultiHeadAttention(dim, num_heads, dropout=config.inner_rate)
        self.feed_forward = FeedForward(dim, config.ff_dim, config.inner_rate)
        self.self_attn_residual = Residual(dim, dropout, norm_first)
        self.cross_attn_residual = Residual(dim, dropout, norm_first)
        self.feed_forward_residual = Residual(dim, dropout, norm_first)

    def forward(
        self,
        x: Float[Tensor, "P D"],
        positions: Positions,
        cross_kv: KeyValue,
        cross_attention_mask: Bool[Tensor, "B N"],
        attention_mask: Bool[Tensor, "B K T T"] | None = None,
    ) -> Float[Tensor, "P D"]:
        """Return the states of all positions.

        cross_kv: keys and values of the regions. attention_mask: which of the tokens up to it each position attends to;
        None for all.
        """
        normed = self.self_attn_residual.pre(x)
        x = self.self_attn_residual.post(x, positions.attend(self.self_attn, normed, normed, attention_mask))
        # the K rows of an image as one row of queries, so that keys and values are not repeated
        queries = positions.by_image(x)
        attended = self._cross_attend(queries, cross_kv, cross_attention_mask, need_weights=False).values
        return self._feed_forward(positions.from_images(attended))

    def step(
        self,
        x: Float[Tensor, "B K D"],
        past_kv: KeyValue,
        length: CacheLength,
        cross_kv: KeyValue,
        cross_attention_mask: Bool[Tensor, "B N"],
        attention_mask: Bool[Tensor, "B K T"] | None = None,
    ) -> tuple[Float[Tensor, "B K D"], KeyValue, Float[Tensor, "B H K N"] | None]:
        """Return the states of one position, the extended keys and values, and the weights over the regions.

        past_kv, length: keys and values of the tokens so far, and their number. attention_mask: which of these and of
        the present token are attended to; None for all.
        """
        normed = self.self_attn_residual.pre(x)
        attended, kv = attend_cached(self.self_attn, normed, normed, past_kv, length, attention_mask)
        x = self.self_attn_residual.post(x, attended)
        x, weights = self._cross_attend(x, cross_kv, cross_attention_mask, need_weights=True)
        return self._feed_forward(x), kv, weights

    def _cross_attend(
        self, x: Float[Tensor, "B Q D"], cross_kv: KeyValue, mask: Bool[Tensor, "B N"], *, need_weights: bool
    ) -> AttentionOutput:
        """Return x after cross-attention, and the weights over the regions."""
        normed = self.cross_attn_residual.pre(x)
        attended = self.cross_attn.attend(self.cross_attn.queries(normed), *cross_kv, mask, need_weights=need_weights)
        return AttentionOutput(self.cross_attn_residual.post(x, attended.values), attended.weights)

    def _feed_forward(self, x: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows D"]:
        return self.feed_forward_residual.post(x, self.feed_forward(self.feed_forward_residual.pre(x)))


def attend_cached(
    attention: Any,
    query: Float[Tensor, "B K D"],
    x: Float[Tensor, "B K D"],
    past_kv: KeyValue,
    length: CacheLength,
    attention_mask: Bool[Tensor, "B K t"] | None,
) -> tuple[Float[Tensor, "B K D"], KeyValue]:
    """Attend from one position of each row to it, given as x, and to those before it; return the extended cache too."""
    B, K, D = x.shape
    token = x.view(B * K, 1, D)
    new = (part.unflatten(0, (B, K)) for part in attention.keys_values(token, token))
    keys, values = (append_kv(past, part, 3, length) for past, part in zip(past_kv, new, strict=True))
    queries = attention.queries(query.view(B * K, 1, D))
    mask = None if attention_mask is None else attention_mask.flatten(0, 1)
    attended = attention.attend(queries, keys.flatten(0, 1), values.flatten(0, 1), mask).values
    return attended.view(B, K, D), (keys, values)


@dataclass(frozen=True, eq=False)
class TransformerState(RowState):
    """Cache of the decoder: for each layer the keys and values of the tokens so far `(B, K, H, t, d)`.

    length: number of tokens so far. attention_mask: which of them later tokens attend to; None for all. attention:
    weights of the last step over the regions.
    """

    shared: ClassVar[tuple[str, ...]] = ("length",)

    length: CacheLength
    kv_cache: tuple[KeyValue, ...]
    attention_mask: Bool[Tensor, "B K t"] | None = None
    attention: Float[Tensor, "B K H N"] | None = None


def add_token_positions(x: Float[Tensor, "*rows T D"], first: CacheLength = 0) -> Float[Tensor, "*rows T D"]:
    """Return x * sqrt(D) plus the sinusoids of positions first, first + 1 ... (Vaswani et al., 2017, 3.4)."""
    return x * math.sqrt(x.shape[-1]) + _position_encodings(x, first)


def _position_encodings(x: Float[Tensor, "*rows T D"], first: CacheLength) -> Float[Tensor, "T D"]:
    """Return the sinusoids of positions first, first + 1 ... in the dtype of x."""
    T, D = x.shape[-2:]
    positions = torch.arange(T, device=x.device, dtype=torch.promote_types(x.dtype, torch.float32)) + first
    return sinusoids(positions, D).to(x.dtype)


class TransformerDecoder(Decoder[TransformerState]):
    """Embedding, L decoder layers and the output layer (NG-SAN, section 3.2)."""

    uses_global_feature = False
    layers: Any
    layer_class: Callable[[Any], DecoderLayer] = DecoderLayer

    def __init__(self, config: LayersConfig) -> None:
        super().__init__()
        self.num_heads = config.num_heads
        self.embedding = nn.Embedding(config.vocab_size, config.dim)
        self.dropout = Dropout(config.dropout)
        self.layers = nn.ModuleList(self.layer_class(config) for _ in range(config.num_layers))
        self.norm = nn.LayerNorm(config.dim) if config.ends_with_norm else nn.Identity()
        self.output = None if config.is_tied else nn.Linear(config.dim, config.vocab_size, bias=config.output_bias)

    def reset_parameters(self) -> None:
        """Initialize all matrices from Xavier's uniform distribution, and embeddings with std 1 / sqrt(D)."""
        init_xavier_uniform_(self)
        nn.init.normal_(self.embedding.weight, std=self.embedding.embedding_dim**-0.5)

    def precompute_cross_kv(self, memory: Memory) -> Memory:
        """Compute keys and values of the image for every layer, shared by all rows."""
        cross_kv = tuple(layer.cross_attn.keys_values(memory.states, memory.states) for layer in self.layers)
        return replace(memory, cross_kv=cross_kv)

    def init_state(self, memory: Memory, num_rows: int) -> TransformerState:
        """Return empty caches."""
        return TransformerState(0, empty_kv(memory, self.num_heads, num_rows, 0, memory.states.dtype))

    def init_static_state(self, memory: Memory, num_rows: int, max_length: int) -> TransformerState | None:
        """Return caches of zeros for `max_length` tokens, and a mask that excludes all of them."""
        mask = memory.mask.new_zeros(memory.mask.shape[0], num_rows, max_length)
        length = torch.zeros((), dtype=torch.long, device=mask.device)
        dtype = memory.cross_kv[0][0].dtype
        return TransformerState(length, empty_kv(memory, self.num_heads, num_rows, max_length, dtype), mask)

    def step(
        self, tokens: Int[Tensor, "B K"], state: TransformerState, memory: Memory
    ) -> tuple[Float[Tensor, "B K V"], TransformerState]:
        """Decode one token of each row; only the cost of self-attention grows with the number of tokens."""
        x = self._embed(tokens.unsqueeze(-1), state.length).squeeze(2)
        next_cache: list[KeyValue] = []
        weights = current_mask = next_mask = None
        if state.attention_mask is not None:
            # every token attends to itself, so that none is without a key
            ones, visible = torch.ones_like(tokens, dtype=torch.bool), self._visible(tokens)
            current_mask = next_mask = append_kv(state.attention_mask, ones.unsqueeze(-1), -1, state.length)
            if visible is not None:
                next_mask = append_kv(state.attention_mask, visible.unsqueeze(-1), -1, state.length)
        for layer, past_kv, cross_kv in zip(self.layers, state.kv_cache, memory.cross_kv, strict=True):
            x, next_kv, weights = layer.step(x, past_kv, state.length, cross_kv, memory.mask, current_mask)
            next_cache.append(next_kv)
        attention = None if weights is None else weights.transpose(1, 2)
        return self._logits(x, tokens), TransformerState(state.length + 1, tuple(next_cache), next_mask, attention)

    def forward(
        self, tokens: Int[Tensor, "B K T"], memory: Memory, real: Bool[Tensor, "B K T"] | None = None
    ) -> Float[Tensor, "*positions V"]:
        """Decode all positions at once."""
        positions, visible, mask = Positions(tokens.shape, real), self._visible(tokens), None
        x = positions.pack(self._embed(tokens, 0))
        if visible is not None:
            mask = visible.unsqueeze(-2) | torch.eye(tokens.shape[-1], dtype=torch.bool, device=tokens.device)
        for layer, cross_kv in zip(self.layers, memory.cross_kv, strict=True):
            x = layer(x, positions, cross_kv, memory.mask, mask)
        return positions.unpack(self._logits(x, positions.pack(tokens)))

    def _embed(self, tokens: Int[Tensor, "B K T"], first: CacheLength) -> Float[Tensor, "B K T D"]:
        """Return the first layer's input; `first` is the position of the first token, counted from 0."""
        return self.dropout(add_token_positions(self.embedding(tokens), first))

    def _visible(self, tokens: Int[Tensor, "B K *T"]) -> Bool[Tensor, "B K *T"] | None:  # noqa: ARG002
        """Return which tokens later ones attend to; None for all."""
        return None

    def _logits(self, x: Float[Tensor, "*rows D"], tokens: Int[Tensor, "*rows"]) -> Float[Tensor, "*rows V"]:  # noqa: ARG002
        """Return the logits after `tokens`, whose states of the last layer are x."""
        x = self.norm(x)
        return F.linear(x, self.embedding.weight) if self.output is None else self.output(x)
