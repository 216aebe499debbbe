"""X-Transformer: X-Linear attention in a Transformer (Pan et al., CVPR 2020, 4.2); the encoder is in xlan.py."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from legenda.attention.multi_head import AttentionOutput, Dropout
from legenda.attention.x_linear import XLinearAttention, create_act
from legenda.config import Count, NonNegativeCount, PositiveInt, Probability
from legenda.decoding.generation import CacheLength, Decoder, RowState, append_kv, empty_kv
from legenda.errors import ConfigError
from legenda.models.base import Encoder
from legenda.models.layers import Positions, PostNormFeedForward
from legenda.models.transformer import attend_cached
from legenda.models.xlan import ConcatUpdate, XLinearConfig, XLinearEncoder
from legenda.regions import Memory

KeyValue = tuple[Tensor, Tensor]


class XTransformerConfig(XLinearConfig):
    """Options of X-Transformer; the defaults are those of the released code, as the paper gives no details.

    Token 0 begins and ends captions: inside a row, later tokens do not attend to it.
    """

    dim: PositiveInt = 768
    """Channels inside the model."""
    num_layers: NonNegativeCount = 6
    """Layers of the encoder; 0 for none."""
    decoder_layers: Count = 6
    """Layers of the decoder."""
    ff_dim: PositiveInt = 3072
    """Inner channels of the feed-forward networks."""
    ff_dropout: Probability = 0.5
    """Dropout rate inside the feed-forward networks, and of their outputs."""
    region_norm: bool = True
    """Layer normalization in the region embedding."""
    decoder_update_dropout: Probability = 0.3
    """Dropout rate of the update of each token (the residual dropout of a decoder layer)."""
    word_dropout: Probability = 0.1
    """Dropout rate of the token embeddings."""
    position_base: Annotated[float, Field(gt=1)] = 10000.0
    """The wavelengths of the positions rise from 2 pi to 2 pi times this."""

    @model_validator(mode="after")
    def _check_xtransformer(self) -> XTransformerConfig:
        if self.dim % 2:
            raise ConfigError(f"dim={self.dim} must be even for sine and cosine of the positions")
        return self

    def build_encoder(self) -> Encoder:
        """Return a new encoder with random weights."""
        return XLinearEncoder(self, ff_dim=self.ff_dim, ff_dropout=self.ff_dropout)

    def build_decoder(self) -> Decoder:
        """Return a new decoder with random weights."""
        return XTransformerDecoder(self)


def positions(
    first: CacheLength, count: int, dim: int, base: float, device: torch.device
) -> Float[Tensor, "count dim"]:
    """Return interleaved sine and cosine of positions first, first + 1 ...

    In float32 for every precision of the model, like the table of the release.
    """
    frequency = torch.exp(torch.arange(0, dim, 2, device=device, dtype=torch.float32) * -(math.log(base) / dim))
    index = torch.arange(count, device=device, dtype=torch.float32) + first
    angle = index.unsqueeze(-1) * frequency
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2)


class XTransformerLayer(nn.Module):
    """Self-attention over the tokens so far, cross-attention to the image, and an update of the tokens by the query."""

    def __init__(self, config: XTransformerConfig, *, is_last: bool) -> None:
        """Create the layer; the last one has no update of the tokens."""
        super().__init__()
        dim = config.dim
        self.self_attn = config.build_block()
        self.cross_attn = config.build_block()
        self.dropout = Dropout(config.decoder_dropout)
        self.kv_norm = nn.LayerNorm(dim)
        self.query_norm = nn.LayerNorm(dim)
        self.update = None if is_last else ConcatUpdate(dim, bias=True, dropout=config.decoder_update_dropout)
        self.feed_forward = None if is_last else PostNormFeedForward(dim, config.ff_dim, config.ff_dropout)

    def forward(
        self,
        query: Float[Tensor, "P D"],
        x: Float[Tensor, "P D"],
        self_attend: Callable[[XLinearAttention, Tensor, Tensor], Tensor],
        positions: Positions,
        cross_kv: KeyValue,
        cross_attention_mask: Bool[Tensor, "B N"],
    ) -> tuple[Float[Tensor, "P D"], Float[Tensor, "P D"]]:
        """Return query and tokens of all positions; self_attend: attends from the query to the tokens up to it."""
        attended = x + self.dropout(self_attend(self.self_attn, query, x))
        # the K rows of an image as one row of queries, so that keys and values are not repeated
        queries = positions.by_image(self.kv_norm(attended))
        image = self._cross_attend(queries, cross_kv, cross_attention_mask).values
        return self._update(attended, positions.from_images(image), x)

    def step(
        self,
        query: Float[Tensor, "B K D"],
        x: Float[Tensor, "B K D"],
        past_kv: KeyValue,
        length: CacheLength,
        token_mask: Bool[Tensor, "B K t"],
        cross_kv: KeyValue,
        cross_attention_mask: Bool[Tensor, "B N"],
    ) -> tuple[Float[Tensor, "B K D"], Float[Tensor, "B K D"], KeyValue, Float[Tensor, "B H K N"] | None]:
        """Return query and token of one position, the extended keys and values, and the weights over the regions.

        past_kv, length: keys and values of the tokens so far, and their number. token_mask: which of them, and of the
        present token, may be attended to.
        """
        attended, kv = attend_cached(self.self_attn, query, x, past_kv, length, token_mask)
        attended = x + self.dropout(attended)
        image = self._cross_attend(self.kv_norm(attended), cross_kv, cross_attention_mask)
        return *self._update(attended, image.values, x), kv, image.weights

    def _cross_attend(
        self, normed: Float[Tensor, "B Q D"], cross_kv: KeyValue, attention_mask: Bool[Tensor, "B N"]
    ) -> AttentionOutput:
        return self.cross_attn.attend(self.cross_attn.queries(normed), *cross_kv, attention_mask)

    def _update(
        self, attended: Float[Tensor, "*rows D"], image: Float[Tensor, "*rows D"], x: Float[Tensor, "*rows D"]
    ) -> tuple[Float[Tensor, "*rows D"], Float[Tensor, "*rows D"]]:
        """Return query and tokens after both attentions; image: output of cross-attention."""
        query = self.query_norm(attended + self.dropout(image))
        if self.update is not None and self.feed_forward is not None:
            x = self.feed_forward(self.update(query, x))
        return query, x


@dataclass(frozen=True, eq=False)
class XTransformerState(RowState):
    """Cache of the decoder: for each layer the keys and values of the tokens so far `(B, K, H, t, d)`.

    length: number of tokens so far. image: factor of the first query for each image. token_mask: which tokens may be
    attended to; sum_embeddings: the sum of their embeddings. attention: weights of the last step over the regions.
    """

    shared: ClassVar[tuple[str, ...]] = ("length", "image")

    length: CacheLength
    image: Float[Tensor, "B D"]
    kv_cache: tuple[KeyValue, ...]
    token_mask: Bool[Tensor, "B K t"]
    sum_embeddings: Float[Tensor, "B K D"]
    attention: Float[Tensor, "B K H N"] | None = None


class XTransformerDecoder(Decoder[XTransformerState]):
    """A query of image and tokens passes through L layers; the logits read it before and after each of them."""

    layers: Any

    def __init__(self, config: XTransformerConfig) -> None:
        super().__init__()
        dim, num_layers = config.dim, config.decoder_layers
        self.num_heads = config.num_heads
        self.position_base = config.position_base
        self.embedding = nn.Embedding(config.vocab_size, dim)
        self.embedding_norm = nn.LayerNorm(dim)
        self.word_dropout = Dropout(config.word_dropout)
        act = create_act(config.act, config.alpha)
        self.from_image = nn.Sequential(nn.Linear(dim, dim), act, nn.LayerNorm(dim))
        self.from_tokens = nn.Sequential(nn.Linear(dim, dim), act, nn.LayerNorm(dim))
        self.dropout = Dropout(config.decoder_dropout)
        self.layers = nn.ModuleList(
            XTransformerLayer(config, is_last=layer == num_layers - 1) for layer in range(num_layers)
        )
        self.concat = nn.Linear((num_layers + 1) * dim, 2 * dim)
        self.norm = nn.LayerNorm(dim)
        self.output_dropout = Dropout(config.output_dropout)
        self.output = nn.Linear(dim, config.vocab_size)

    def precompute_cross_kv(self, memory: Memory) -> Memory:
        """Compute keys and values of the image for every layer, shared by all rows."""
        cross_kv = tuple(layer.cross_attn.keys_values(memory.states, memory.states) for layer in self.layers)
        return replace(memory, cross_kv=cross_kv)

    def init_state(self, memory: Memory, num_rows: int) -> XTransformerState:
        """Return empty caches."""
        return self._init_state(memory, num_rows, 0, 0, memory.states.dtype)

    def init_static_state(self, memory: Memory, num_rows: int, max_length: int) -> XTransformerState:
        """Return caches of zeros for `max_length` tokens, and a mask that excludes all of them."""
        length = torch.zeros((), dtype=torch.long, device=memory.mask.device)
        return self._init_state(memory, num_rows, max_length, length, memory.cross_kv[0][0].dtype)

    def _init_state(
        self, memory: Memory, num_rows: int, capacity: int, length: CacheLength, dtype: torch.dtype
    ) -> XTransformerState:
        B, _, D = memory.states.shape
        return XTransformerState(
            length,
            self.from_image(memory.global_feature),
            empty_kv(memory, self.num_heads, num_rows, capacity, dtype),
            memory.mask.new_zeros(B, num_rows, capacity),
            memory.states.new_zeros(B, num_rows, D),
        )

    def step(
        self, tokens: Int[Tensor, "B K"], state: XTransformerState, memory: Memory
    ) -> tuple[Float[Tensor, "B K V"], XTransformerState]:
        """Decode one token of each row; only the cost of self-attention grows with the number of tokens."""
        length = state.length
        x = self._embed(tokens.unsqueeze(-1), length).squeeze(2)
        real = (tokens != 0) | (length == 0)
        token_mask = append_kv(state.token_mask, real.unsqueeze(-1), -1, length)
        total = state.sum_embeddings + x * real.unsqueeze(-1)
        query = self._query(state.image.unsqueeze(1), total / token_mask.sum(dim=-1, keepdim=True))
        queries, next_cache, weights = [query], [], None
        for layer, past_kv, cross_kv in zip(self.layers, state.kv_cache, memory.cross_kv, strict=True):
            query, x, next_kv, weights = layer.step(query, x, past_kv, length, token_mask, cross_kv, memory.mask)
            queries.append(query)
            next_cache.append(next_kv)
        attention = None if weights is None else weights.transpose(1, 2)
        state = XTransformerState(length + 1, state.image, tuple(next_cache), token_mask, total, attention)
        return self._gate(queries), state

    def forward(
        self, tokens: Int[Tensor, "B K T"], memory: Memory, real: Bool[Tensor, "B K T"] | None = None
    ) -> Float[Tensor, "*positions V"]:
        """Decode all positions at once."""
        positions, x = Positions(tokens.shape, real), self._embed(tokens, 0)
        token_mask = tokens != 0
        token_mask[..., 0] = True
        totals = (x * token_mask.unsqueeze(-1)).cumsum(dim=2)
        image = self.from_image(memory.global_feature)[:, None, None]
        query = positions.pack(self._query(image, totals / token_mask.cumsum(dim=2).unsqueeze(-1)))
        x, queries = positions.pack(x), [query]
        self_attend = partial(positions.attend, mask=token_mask)
        if real is not None and x.device.type == "cpu":  # on GPUs sums over a list of pairs have no fixed order
            i, j = positions.pairs(token_mask)
            self_attend = partial(XLinearAttention.attend_pairs, i=i, j=j)
        for layer, cross_kv in zip(self.layers, memory.cross_kv, strict=True):
            query, x = layer(query, x, self_attend, positions, cross_kv, memory.mask)
            queries.append(query)
        return positions.unpack(self._gate(queries))

    def _embed(self, tokens: Int[Tensor, "B K T"], first: CacheLength) -> Float[Tensor, "B K T D"]:
        x = self.embedding(tokens)
        D = x.shape[-1]
        encodings = positions(first, tokens.shape[-1], D, self.position_base, x.device)
        return self.word_dropout(self.embedding_norm(math.sqrt(D) * x + encodings.to(x.dtype)))

    def _query(self, image: Float[Tensor, "*#rows D"], mean: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows D"]:
        """Return the first query: the product of the image and the mean of the tokens so far."""
        return self.dropout(image * self.from_tokens(mean))

    def _gate(self, queries: list[Float[Tensor, "*rows D"]]) -> Float[Tensor, "*rows V"]:
        """Return the logits of the queries before and after each layer."""
        return self.output(self.output_dropout(self.norm(F.glu(self.concat(torch.cat(queries, dim=-1))))))
