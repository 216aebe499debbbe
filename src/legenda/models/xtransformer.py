"""X-Transformer: X-Linear attention in a Transformer (Pan et al., CVPR 2020, section 4.2, as released)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from legenda.attention.x_linear import create_act
from legenda.decoding.decoder import Decoder
from legenda.decoding.kv_cache import CacheLength, append_kv, empty_kv, gather_beams
from legenda.errors import UserError
from legenda.models.layers import PostNormFeedForward
from legenda.models.x_linear import Update, XLinearConfig, XLinearEncoder
from legenda.regions import Memory

KeysValues = tuple[Tensor, Tensor]


@dataclass(frozen=True, kw_only=True)
class XTransformerConfig(XLinearConfig):
    """Sizes of X-Transformer; the defaults are those of the released code, for the paper says only that it exists.

    Id 0 begins and ends captions: where it stands inside a row, later words do not look at it.
    """

    dim: int = 768
    """Channels inside the model."""
    num_layers: int = 6
    """Layers of the encoder; 0 for none."""
    decoder_layers: int = 6
    """Layers of the decoder."""
    ff_dim: int = 3072
    """Inner channels of the feed-forward layers."""
    ff_dropout: float = 0.5
    """Inside the feed-forward layers, and of what they add."""
    region_norm: bool = True
    """Layer normalisation in the region embedding."""
    word_dropout: float = 0.1
    """Of the embedded words."""
    position_base: float = 10000.0
    """The waves of the positions rise from 2 pi towards 2 pi times this."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_positive("ff_dim")
        if self.dim % 2:
            raise UserError(f"dim={self.dim} must be even for sine and cosine of the positions")
        if self.position_base <= 1:
            raise UserError(f"position_base must be above 1, not {self.position_base}")

    def build_encoder(self) -> XLinearEncoder:
        """X-LAN's encoder with a feed-forward layer after each layer."""
        return XLinearEncoder(self, ff_dim=self.ff_dim, ff_dropout=self.ff_dropout)

    def build_decoder(self) -> XTransformerDecoder:
        """Layers of attention to words and image, all of whose results choose the word."""
        return XTransformerDecoder(self)


def positions(
    first: CacheLength, count: int, dim: int, base: float, device: torch.device
) -> Float[Tensor, "count dim"]:
    """Sine and cosine in turn of places first, first + 1 ...

    In float32 whatever the model's precision, as the release's table is: a model in double adds the same numbers.
    """
    frequency = torch.exp(torch.arange(0, dim, 2, device=device, dtype=torch.float32) * -(math.log(base) / dim))
    place = torch.arange(count, device=device, dtype=torch.float32) + first
    angle = place.unsqueeze(-1) * frequency
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2)


class XTransformerLayer(nn.Module):
    """The query looks at the words so far and then at the image; the words are updated by what it found."""

    def __init__(self, config: XTransformerConfig, *, last: bool) -> None:
        super().__init__()
        self.words = config.create_block()
        self.image = config.create_block()
        self.dropout = nn.Dropout(config.decoder_dropout)
        self.heard_norm = nn.LayerNorm(config.dim)
        self.query_norm = nn.LayerNorm(config.dim)
        self.update = None if last else Update(config)
        self.feed_forward = None if last else PostNormFeedForward(config.dim, config.ff_dim, config.ff_dropout)

    def forward(
        self,
        query: Float[Tensor, "B K T D"],
        x: Float[Tensor, "B K T D"],
        real: Bool[Tensor, "B K T"],
        image: KeysValues,
        mask: Bool[Tensor, "B N"],
    ) -> tuple[Float[Tensor, "B K T D"], Float[Tensor, "B K T D"]]:
        """Query and words of all positions after this layer; `real` says which words may be looked at."""
        rows = x.flatten(0, 1)
        heard = self.words(query.flatten(0, 1), rows, rows, real.flatten(0, 1), is_causal=True).values
        # The rows of an image are one long row of queries: its keys and values are never repeated.
        query, x, _ = self._look(heard.view_as(x).flatten(1, 2), x.flatten(1, 2), image, mask)
        return query.view(*real.shape, -1), x.view(*real.shape, -1)

    def step(
        self,
        query: Float[Tensor, "B K D"],
        x: Float[Tensor, "B K D"],
        said: KeysValues,
        length: CacheLength,
        real: Bool[Tensor, "B K t"],
        image: KeysValues,
        mask: Bool[Tensor, "B N"],
    ) -> tuple[Float[Tensor, "B K D"], Float[Tensor, "B K D"], KeysValues, Float[Tensor, "B H K N"]]:
        """One position: query, word, the keys and values of the words with its own, and the weights over the regions.

        said, length: keys and values of the words so far, and how many these are; real: which of them count, this
        word included.
        """
        B, K, D = x.shape
        word = x.view(B * K, 1, D)
        key, value = self.words.keys_values(word, word)
        keys = append_kv(said[0], key.unflatten(0, (B, K)), 3, length)
        values = append_kv(said[1], value.unflatten(0, (B, K)), 3, length)
        asked = self.words.queries(query.view(B * K, 1, D))
        heard = self.words.attend(asked, keys.flatten(0, 1), values.flatten(0, 1), real.flatten(0, 1)).values
        query, x, weights = self._look(heard.view(B, K, D), x, image, mask)
        return query, x, (keys, values), weights

    def _look(
        self, heard: Float[Tensor, "B Q D"], x: Float[Tensor, "B Q D"], image: KeysValues, mask: Bool[Tensor, "B N"]
    ) -> tuple[Float[Tensor, "B Q D"], Float[Tensor, "B Q D"], Float[Tensor, "B H Q N"]]:
        heard = x + self.dropout(heard)
        seen = self.image.attend(self.image.queries(self.heard_norm(heard)), *image, mask)
        assert seen.weights is not None
        query = self.query_norm(heard + self.dropout(seen.values))
        if self.update is not None and self.feed_forward is not None:
            x = self.feed_forward(self.update(query, x))
        return query, x, seen.weights


@dataclass(frozen=True, eq=False)
class XTransformerState:
    """What is left of the words so far, for each layer keys and values `(B, K, H, t, d)`.

    length: of the words so far; image: the share of each image in the first query; real: which words count; total:
    the sum of their embeddings; attention: where the last word looked.
    """

    length: CacheLength
    image: Float[Tensor, "B D"]
    kv_cache: tuple[KeysValues, ...]
    real: Bool[Tensor, "B K t"]
    total: Float[Tensor, "B K D"]
    attention: Float[Tensor, "B K H N"] | None = None

    def reorder(self, beams: Int[Tensor, "B K"]) -> XTransformerState:
        """The state of rows `beams` of each image."""
        return XTransformerState(
            self.length,
            self.image,
            tuple((gather_beams(keys, beams), gather_beams(values, beams)) for keys, values in self.kv_cache),
            gather_beams(self.real, beams),
            gather_beams(self.total, beams),
            None if self.attention is None else gather_beams(self.attention, beams),
        )


class XTransformerDecoder(Decoder):
    """A query made of image and words goes through L layers; what it was before and after each chooses the word."""

    def __init__(self, config: XTransformerConfig) -> None:
        super().__init__()
        D, L = config.dim, config.decoder_layers
        self.num_heads = config.num_heads
        self.position_base = config.position_base
        self.embedding = nn.Embedding(config.vocab_size, D)
        self.embedding_norm = nn.LayerNorm(D)
        self.word_dropout = nn.Dropout(config.word_dropout)
        act = create_act(config.act, config.alpha)
        self.from_image = nn.Sequential(nn.Linear(D, D), act, nn.LayerNorm(D))
        self.from_words = nn.Sequential(nn.Linear(D, D), act, nn.LayerNorm(D))
        self.dropout = nn.Dropout(config.decoder_dropout)
        self.layers = nn.ModuleList(XTransformerLayer(config, last=layer == L - 1) for layer in range(L))
        self.gather = nn.Linear((L + 1) * D, 2 * D)
        self.norm = nn.LayerNorm(D)
        self.output_dropout = nn.Dropout(config.output_dropout)
        self.output = nn.Linear(D, config.vocab_size)

    @property
    def _stack(self) -> list[XTransformerLayer]:
        return cast("list[XTransformerLayer]", list(self.layers))

    def precompute_cross_kv(self, memory: Memory) -> Memory:
        """Keys and values of the image for every layer, and its vector, shared by all rows."""
        projected = tuple(layer.image.keys_values(memory.states, memory.states) for layer in self._stack)
        return Memory(memory.states, memory.mask, memory.global_feature, projected)

    def init_state(self, memory: Memory, num_rows: int) -> XTransformerState:
        """No words yet."""
        return self._start(memory, num_rows, 0, 0, memory.states.dtype)

    def init_static_state(self, memory: Memory, num_rows: int, max_length: int) -> XTransformerState:
        """No words yet: keys and values of zeros, which do not count."""
        length = torch.zeros((), dtype=torch.long, device=memory.mask.device)
        return self._start(memory, num_rows, max_length, length, memory.cross_kv[0][0].dtype)

    def _start(
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
        """One word for each row; only the attention over the words so far grows with their number."""
        length = state.length
        x = self._embed(tokens.unsqueeze(-1), length).squeeze(2)
        counts = (tokens != 0) | (length == 0)
        real = append_kv(state.real, counts.unsqueeze(-1), -1, length)
        total = state.total + x * counts.unsqueeze(-1)
        query = self._ask(state.image.unsqueeze(1), total / real.sum(dim=-1, keepdim=True))
        seen, grown, weights = [query], [], None
        for layer, said, image in zip(self._stack, state.kv_cache, memory.cross_kv, strict=True):
            query, x, kept, weights = layer.step(query, x, said, length, real, image, memory.mask)
            seen.append(query)
            grown.append(kept)
        attention = None if weights is None else weights.transpose(1, 2)
        return self._choose(seen), XTransformerState(length + 1, state.image, tuple(grown), real, total, attention)

    def forward(self, tokens: Int[Tensor, "B K T"], memory: Memory) -> Float[Tensor, "B K T V"]:
        """All positions at once."""
        x = self._embed(tokens, 0)
        real = tokens != 0
        real[..., 0] = True
        totals = (x * real.unsqueeze(-1)).cumsum(dim=2)
        image = self.from_image(memory.global_feature)[:, None, None]
        query = self._ask(image, totals / real.cumsum(dim=2).unsqueeze(-1))
        seen = [query]
        for layer, projected in zip(self._stack, memory.cross_kv, strict=True):
            query, x = layer(query, x, real, projected, memory.mask)
            seen.append(query)
        return self._choose(seen)

    def _embed(self, tokens: Int[Tensor, "B K T"], first: CacheLength) -> Float[Tensor, "B K T D"]:
        x = self.embedding(tokens)
        D = x.shape[-1]
        place = positions(first, tokens.shape[-1], D, self.position_base, x.device)
        return self.word_dropout(self.embedding_norm(math.sqrt(D) * x + place.to(x.dtype)))

    def _ask(self, image: Float[Tensor, "*#rows D"], mean: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows D"]:
        """The first query: the image and the mean of the words so far, multiplied."""
        return self.dropout(image * self.from_words(mean))

    def _choose(self, seen: list[Float[Tensor, "*rows D"]]) -> Float[Tensor, "*rows V"]:
        found = self.norm(F.glu(self.gather(torch.cat(seen, dim=-1))))
        return self.output(self.output_dropout(found))
