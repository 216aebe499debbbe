"""SAN, N-SAN, G-SAN and NG-SAN: a Transformer from regions to words (Guo et al., CVPR 2020)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from legenda.attention import (
    AttentionConfig,
    Geometry,
    MultiHeadAttention,
    absolute_geometry,
    create_pair_geometry,
    create_self_attention,
    sinusoids,
)
from legenda.decoding.decoder import Decoder
from legenda.decoding.kv_cache import CacheLength, append_kv, empty_kv, gather_beams
from legenda.errors import UserError
from legenda.models.config import ModelConfig
from legenda.models.encoder import Encoder, xavier
from legenda.regions import Memory, Regions, masked_mean


@dataclass(frozen=True, kw_only=True)
class TransformerConfig(AttentionConfig, ModelConfig):
    """Sizes and slots of `transformer`, `nsan`, `gsan` and `ngsan`; the defaults are those of the paper (section 5.1).

    The open readings of the paper are settled as follows: post-norm with a last normalisation after each stack (as
    torch's own Transformer has it), output layer not tied to the embedding, geometry embedded once for all layers.
    """

    num_heads: int = 8
    num_layers: int = 4
    """Layers of the encoder, and of the decoder."""
    ff_dim: int = 2048
    """Inner channels of the feed-forward layers."""
    dropout: float = 0.1
    norm_first: bool = False
    """Layer normalisation before each sub-layer instead of after it."""
    ordered: bool = False
    """The regions are frames of a video in their order, and the sinusoids of their places are added to them."""

    def __post_init__(self) -> None:
        self.positive("num_heads", "num_layers", "ff_dim", "geometry_dim")
        self.shares("dropout")
        if self.dim % self.num_heads or self.dim % 2:
            raise UserError(f"dim={self.dim} must be even and a multiple of num_heads={self.num_heads}")
        self.check(self.dim)

    @property
    def inner_dropout(self) -> float:
        """Dropout of attention's weights and inside the feed-forward layers."""
        return self.dropout

    def build_encoder(self) -> TransformerEncoder:
        """The encoder of section 3.2."""
        return TransformerEncoder(self)

    def build_decoder(self) -> TransformerDecoder:
        """The decoder of section 3.2."""
        return TransformerDecoder(self)


class FeedForward(nn.Sequential):
    """Two linear layers with a ReLU between them, each position by itself."""

    def __init__(self, dim: int, ff_dim: int, dropout: float) -> None:
        super().__init__(nn.Linear(dim, ff_dim), nn.ReLU(), nn.Dropout(dropout), nn.Linear(ff_dim, dim))


class Residual(nn.Module):
    """x + sub-layer(x), normalised after the sum or, with `norm_first`, before the sub-layer."""

    def __init__(self, dim: int, dropout: float, norm_first: bool) -> None:
        super().__init__()
        self.norm: nn.Module = nn.LayerNorm(dim)
        self.dropout = nn.Dropout(dropout)
        self.norm_first = norm_first

    def before(self, x: Tensor) -> Tensor:
        """What the sub-layer reads."""
        return self.norm(x) if self.norm_first else x

    def after(self, x: Tensor, y: Tensor) -> Tensor:
        """What the next one reads, `y` being what the sub-layer gave."""
        total = x + self.dropout(y)
        return total if self.norm_first else self.norm(total)


class EncoderLayer(nn.Module):
    """Self-attention among regions, with whatever its slots hold, and a feed-forward layer."""

    def __init__(self, config: TransformerConfig, layer: int) -> None:
        super().__init__()
        self.attention = create_self_attention(
            config, config.dim, config.num_heads, layer=layer, dropout=config.inner_dropout
        )
        self.feed_forward = FeedForward(config.dim, config.ff_dim, config.inner_dropout)
        self.around_attention = Residual(config.dim, config.dropout, config.norm_first)
        self.around_feed_forward = Residual(config.dim, config.dropout, config.norm_first)

    def forward(
        self, x: Float[Tensor, "B N D"], mask: Bool[Tensor, "B N"], geometry: Geometry
    ) -> Float[Tensor, "B N D"]:
        """The regions after this layer."""
        read = self.around_attention.before(x)
        x = self.around_attention.after(x, self.attention(read, read, read, mask, geometry).values)
        return self.around_feed_forward.after(x, self.feed_forward(self.around_feed_forward.before(x)))


class TransformerEncoder(Encoder):
    """Linear, ReLU and L layers of self-attention over the regions (NG-SAN, section 3.2)."""

    def __init__(self, config: TransformerConfig, *, last_norm: bool = True) -> None:
        """last_norm: whether a normalisation follows the last layer."""
        super().__init__()
        self.needs_boxes = config.needs_boxes
        self.absolute, self.ordered = config.geometry == "absolute", config.ordered
        self.input = nn.Linear(config.feature_dim, config.dim)
        self.dropout = nn.Dropout(config.dropout)
        self.layers = nn.ModuleList(EncoderLayer(config, layer) for layer in range(config.num_layers))
        self.norm = nn.LayerNorm(config.dim) if last_norm else nn.Identity()
        self.geometry = create_pair_geometry(config, config.num_layers)

    def reset_parameters(self) -> None:
        """Xavier's numbers."""
        xavier(self)

    def forward(self, regions: Regions) -> Memory:
        """Encoded regions; rows of padded regions are finite and mean nothing."""
        mask = regions.mask_or_ones
        padding = ~mask.unsqueeze(-1)  # may hold anything, even NaN, which no later mask would stop
        x = F.relu(self.input(regions.features.masked_fill(padding, 0.0)))
        boxes = None if regions.boxes is None else regions.boxes.masked_fill(padding, 0.0)
        levels = [self._placed(x, boxes)]
        for layer, geometry in zip(self.layers, self.geometry(regions), strict=True):
            levels.append(layer(levels[-1], mask, geometry))
        return self._remember(levels[1:], mask)

    def _remember(self, levels: list[Tensor], mask: Bool[Tensor, "B N"]) -> Memory:
        """What the layers' outputs, the first layer's first, become for the decoder."""
        states = self.norm(levels[-1])
        return Memory(states, mask, masked_mean(states, mask))

    def _placed(self, x: Float[Tensor, "B N D"], boxes: Float[Tensor, "B N 4"] | None) -> Float[Tensor, "B N D"]:
        """What the first layer reads of the input layer's channels."""
        return self.dropout(self._with_places(x, boxes))

    def _with_places(self, x: Float[Tensor, "B N D"], boxes: Float[Tensor, "B N 4"] | None) -> Float[Tensor, "B N D"]:
        """The regions with the sinusoids of their order or their boxes, where the configuration asks for them."""
        if self.ordered:
            x = x + sinusoids(torch.arange(x.shape[1], device=x.device, dtype=x.dtype), x.shape[-1])
        if not self.absolute:
            return x
        assert boxes is not None
        return x + absolute_geometry(boxes, x.shape[-1])


KeysValues = tuple[Tensor, Tensor]


class DecoderLayer(nn.Module):
    """Self-attention over the words so far, attention to the image, a feed-forward layer."""

    def __init__(self, config: TransformerConfig, *, double_norm: bool = False) -> None:
        """double_norm: each attention has a residual connection and a normalisation of its own within those around it,
        as the releases of the Meshed-Memory Transformer and MD-SAN have.
        """
        super().__init__()
        self.words = MultiHeadAttention(config.dim, config.num_heads, dropout=config.inner_dropout)
        self.image = MultiHeadAttention(config.dim, config.num_heads, dropout=config.inner_dropout)
        self.feed_forward = FeedForward(config.dim, config.ff_dim, config.inner_dropout)
        self.around_words = Residual(config.dim, config.dropout, config.norm_first)
        self.around_image = Residual(config.dim, config.dropout, config.norm_first)
        self.around_feed_forward = Residual(config.dim, config.dropout, config.norm_first)
        self.within_words = Residual(config.dim, config.dropout, False) if double_norm else None
        self.within_image = Residual(config.dim, config.dropout, False) if double_norm else None

    def forward(
        self,
        x: Float[Tensor, "B K T D"],
        image: KeysValues,
        mask: Bool[Tensor, "B N"],
        heard: Bool[Tensor, "B K T T"] | None = None,
    ) -> Float[Tensor, "B K T D"]:
        """All positions at once; `image` holds the keys and values of the regions.

        heard: which of the words up to it each position may hear; None for all.
        """
        B, K, T, D = x.shape
        x = x.view(B * K, T, D)
        read = self.around_words.before(x)
        words = self.words(read, read, read, None if heard is None else heard.flatten(0, 1), is_causal=True).values
        x = self.around_words.after(x, _within(self.within_words, read, words))
        # The rows of an image are one long row of queries: its keys and values are never repeated.
        return self._look(x.view(B, K * T, D), image, mask, need_weights=False)[0].view(B, K, T, D)

    def step(
        self,
        x: Float[Tensor, "B K D"],
        said: KeysValues,
        length: CacheLength,
        image: KeysValues,
        mask: Bool[Tensor, "B N"],
        heard: Bool[Tensor, "B K T"] | None = None,
    ) -> tuple[Float[Tensor, "B K D"], KeysValues, Float[Tensor, "B H K N"]]:
        """One position: the states, the keys and values of the words with its own, and the weights over the regions.

        said, length: keys and values of the words so far, and how many these are. heard: which of them, this word
        included, it may hear; None for all.
        """
        B, K, D = x.shape
        read = self.around_words.before(x).view(B * K, 1, D)
        key, value = self.words.keys_values(read, read)
        keys = append_kv(said[0], key.unflatten(0, (B, K)), 3, length)
        values = append_kv(said[1], value.unflatten(0, (B, K)), 3, length)
        words = self.words.attend(
            self.words.queries(read),
            keys.flatten(0, 1),
            values.flatten(0, 1),
            None if heard is None else heard.flatten(0, 1),
        ).values
        x = self.around_words.after(x, _within(self.within_words, read, words).view(B, K, D))
        x, weights = self._look(x, image, mask, need_weights=True)
        assert weights is not None
        return x, (keys, values), weights

    def _look(
        self, x: Float[Tensor, "B Q D"], image: KeysValues, mask: Bool[Tensor, "B N"], *, need_weights: bool
    ) -> tuple[Float[Tensor, "B Q D"], Float[Tensor, "B H Q N"] | None]:
        x, weights = self._attended(x, image, mask, need_weights=need_weights)
        x = self.around_feed_forward.after(x, self.feed_forward(self.around_feed_forward.before(x)))
        return x, weights

    def _attended(
        self, x: Float[Tensor, "B Q D"], image: KeysValues, mask: Bool[Tensor, "B N"], *, need_weights: bool
    ) -> tuple[Float[Tensor, "B Q D"], Float[Tensor, "B H Q N"] | None]:
        """What x becomes by looking at the image, and the weights over its regions."""
        read = self.around_image.before(x)
        seen = self.image.attend(self.image.queries(read), *image, mask, need_weights=need_weights)
        return self.around_image.after(x, _within(self.within_image, read, seen.values)), seen.weights


def _within(residual: Residual | None, x: Tensor, y: Tensor) -> Tensor:
    return y if residual is None else residual.after(x, y)


@dataclass(frozen=True, eq=False)
class TransformerState:
    """Keys and values of the words so far, for each layer `(B, K, H, t, d)`, and where the last word looked.

    heard: which of these words the next ones may hear; None where they may hear all.
    """

    length: CacheLength
    kv_cache: tuple[KeysValues, ...]
    heard: Bool[Tensor, "B K t"] | None = None
    attention: Float[Tensor, "B K H N"] | None = None

    def reorder(self, beams: Int[Tensor, "B K"]) -> TransformerState:
        """The state of rows `beams` of each image."""
        return replace(
            self,
            kv_cache=tuple((gather_beams(keys, beams), gather_beams(values, beams)) for keys, values in self.kv_cache),
            heard=None if self.heard is None else gather_beams(self.heard, beams),
            attention=None if self.attention is None else gather_beams(self.attention, beams),
        )


def placed_words(x: Float[Tensor, "*rows T D"], first: CacheLength = 0) -> Float[Tensor, "*rows T D"]:
    """Embedded words scaled to the length of their places' sinusoids, which are added (Vaswani et al., 2017, 3.4)."""
    T, D = x.shape[-2:]
    place = torch.arange(T, device=x.device, dtype=x.dtype) + first
    return x * math.sqrt(D) + sinusoids(place, D)


class TransformerDecoder(Decoder):
    """Embedding, L decoder layers and the output layer (NG-SAN, section 3.2)."""

    uses_global_feature = False

    def __init__(
        self,
        config: TransformerConfig,
        *,
        double_norm: bool = False,
        last_norm: bool = True,
        output_bias: bool = True,
        tied: bool = False,
        pad_id: int | None = None,
    ) -> None:
        """double_norm: as in DecoderLayer; last_norm: whether a normalisation follows the last layer.

        tied: whether the output layer has the embedding's weights, and no bias (Press and Wolf, 2017).
        pad_id: a word that no other one hears, and after which all words are equally likely.
        """
        super().__init__()
        self.num_heads = config.num_heads
        self.pad_id = pad_id
        self.embedding = nn.Embedding(config.vocab_size, config.dim)
        self.dropout = nn.Dropout(config.dropout)
        self.layers = nn.ModuleList(self._layer(config, double_norm) for _ in range(config.num_layers))
        self.norm = nn.LayerNorm(config.dim) if last_norm else nn.Identity()
        self.output = None if tied else nn.Linear(config.dim, config.vocab_size, bias=output_bias)

    def reset_parameters(self) -> None:
        """Xavier's numbers, and words of unit length."""
        xavier(self)
        nn.init.normal_(self.embedding.weight, std=self.embedding.embedding_dim**-0.5)

    def _layer(self, config: TransformerConfig, double_norm: bool) -> DecoderLayer:
        return DecoderLayer(config, double_norm=double_norm)

    @property
    def _stack(self) -> list[DecoderLayer]:
        return cast("list[DecoderLayer]", list(self.layers))

    def precompute_cross_kv(self, memory: Memory) -> Memory:
        """Keys and values of the image for every layer, shared by all rows."""
        projected = tuple(layer.image.keys_values(memory.states, memory.states) for layer in self._stack)
        return replace(memory, cross_kv=projected)

    def init_state(self, memory: Memory, num_rows: int) -> TransformerState:
        """No words yet: empty keys and values."""
        heard = None if self.pad_id is None else memory.mask.new_zeros(len(memory), num_rows, 0)
        return TransformerState(0, empty_kv(memory, self.num_heads, num_rows, 0, memory.states.dtype), heard)

    def init_static_state(self, memory: Memory, num_rows: int, max_length: int) -> TransformerState | None:
        """No words yet: keys and values of zeros, which no word hears."""
        heard = memory.mask.new_zeros(len(memory), num_rows, max_length)
        length = torch.zeros((), dtype=torch.long, device=heard.device)
        dtype = memory.cross_kv[0][0].dtype
        return TransformerState(length, empty_kv(memory, self.num_heads, num_rows, max_length, dtype), heard)

    def step(
        self, tokens: Int[Tensor, "B K"], state: TransformerState, memory: Memory
    ) -> tuple[Float[Tensor, "B K V"], TransformerState]:
        """One word for each row; only the attention over the words so far grows with their number."""
        x = self._embed(tokens.unsqueeze(-1), state.length).squeeze(2)
        grown: list[KeysValues] = []
        weights = now = later = None
        if state.heard is not None:
            # Every word hears itself, so that none is without a key.
            itself = torch.ones_like(tokens, dtype=torch.bool).unsqueeze(-1)
            now = later = append_kv(state.heard, itself, -1, state.length)
            if self.pad_id is not None:
                later = append_kv(state.heard, tokens.ne(self.pad_id).unsqueeze(-1), -1, state.length)
        for layer, said, image in zip(self._stack, state.kv_cache, memory.cross_kv, strict=True):
            x, kept, weights = layer.step(x, said, state.length, image, memory.mask, now)
            grown.append(kept)
        attention = None if weights is None else weights.transpose(1, 2)
        return self._logits(x, tokens), TransformerState(state.length + 1, tuple(grown), later, attention)

    def forward(self, tokens: Int[Tensor, "B K T"], memory: Memory) -> Float[Tensor, "B K T V"]:
        """All positions at once."""
        x, heard = self._embed(tokens, 0), None
        if self.pad_id is not None:
            itself = torch.eye(tokens.shape[-1], dtype=torch.bool, device=tokens.device)
            heard = tokens.ne(self.pad_id).unsqueeze(-2) | itself
        for layer, image in zip(self._stack, memory.cross_kv, strict=True):
            x = layer(x, image, memory.mask, heard)
        return self._logits(x, tokens)

    def _embed(self, tokens: Int[Tensor, "B K T"], first: CacheLength) -> Float[Tensor, "B K T D"]:
        """What the first layer reads; `first` is the position of the first token, counted from 0."""
        return self.dropout(placed_words(self.embedding(tokens), first))

    def _logits(self, x: Float[Tensor, "B K *T D"], tokens: Int[Tensor, "B K *T"]) -> Float[Tensor, "B K *T V"]:
        x = self.norm(x)
        logits = F.linear(x, self.embedding.weight) if self.output is None else self.output(x)
        return logits if self.pad_id is None else logits.masked_fill(tokens.eq(self.pad_id).unsqueeze(-1), 0.0)
