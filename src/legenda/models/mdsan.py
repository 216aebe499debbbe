"""MD-SAN: distance-sensitive attention in several branches, in a Transformer (Ji et al., TMM 2023).

Its release is based on that of the Meshed-Memory Transformer (Cornia et al., CVPR 2020), which is here too: its decoder
attends to every layer of the encoder. The memory slots are in `legenda.attention.memory`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from legenda.attention import ATTENTIONS, DISTANCES, AttentionOutput, MultiHeadAttention, sinusoids
from legenda.config import Count, NonNegativeInt, PositiveInt, Probability
from legenda.decoding.generation import CacheLength, Decoder
from legenda.errors import DataError
from legenda.models.base import Encoder
from legenda.models.layers import Residual, init_xavier_uniform_
from legenda.models.transformer import (
    DecoderLayer,
    KeyValue,
    TransformerConfig,
    TransformerDecoder,
    TransformerEncoder,
    TransformerState,
)
from legenda.regions import Memory, Regions, mask_zero_features, masked_mean


class MdsanConfig(TransformerConfig):
    """Options of `mdsan` and its ablations; the defaults are those of the released code."""

    paper_defaults: ClassVar[Mapping[str, object]] = {"distance_init": "one"}

    num_layers: Count = 3
    """Layers of the encoder, and of the decoder."""
    distance: Annotated[str, DISTANCES] = "manhattan"
    """Distance by which the scores are rescaled (Eq. 6 and Table VII)."""
    branches: Count = 3
    """Attentions that are averaged (Eq. 9)."""
    drop_branch: Probability = 0.4
    """Probability of dropping each of several branches in training (Eqs. 10 and 11)."""
    variant: Literal["released", "paper"] = "released"
    """released: a residual connection and layer normalization inside each branch, two of them around each attention of
    the decoder, and positional encodings that are random and not trained. paper: one of them around each attention, and
    sinusoids, and scores are divided by sqrt(d) of the model's width instead of a head's (Eqs. 2 and 8)."""
    positions: PositiveInt = 55
    """Rows of the table of positions: the largest number of tokens, and one; the first row is not used."""
    pad_token_id: NonNegativeInt | None = None
    """Token that pads captions, to which no other one attends; None for no such token."""
    zero_rows_are_padding: bool = True
    """Whether regions whose features are all 0 are masked, besides those that the mask excludes."""

    @property
    def scale_by_dim(self) -> bool:
        """Whether scores are divided by sqrt(d) of the model's width."""
        return self.variant == "paper"

    @property
    def ends_with_norm(self) -> bool:
        """Whether a layer normalization follows the last layer of each stack."""
        return self.norm_first

    @property
    def output_bias(self) -> bool:
        """Whether an output layer of its own has a bias."""
        return False

    @property
    def branch_norm(self) -> bool:
        """Whether each branch has a residual connection and layer normalization."""
        return self.variant == "released" if self.branch_residual is None else self.branch_residual

    def build_encoder(self) -> Encoder:
        """Return a new encoder with random weights."""
        return MdsanEncoder(self)

    def build_decoder(self) -> Decoder:
        """Return a new decoder with random weights."""
        return MdsanDecoder(self)


def _set_scale(module: nn.Module, config: MdsanConfig) -> None:
    for attention in module.modules():
        if isinstance(attention, MultiHeadAttention):
            attention.scale_by_dim = config.scale_by_dim


class MdsanEncoder(TransformerEncoder):
    """Linear, ReLU, layer normalization, and L layers of the configured attention."""

    def __init__(self, config: MdsanConfig) -> None:
        super().__init__(config)
        self.input_norm = nn.LayerNorm(config.dim)
        self.zero_rows_are_padding = config.zero_rows_are_padding
        self.grid_size = config.grid_size
        _set_scale(self, config)

    def with_default_boxes(self, regions: Regions) -> Regions:
        """Return the regions with the boxes of a grid's cells, where they have none and number `grid_size` squared."""
        if regions.boxes is not None or regions.features.shape[1] != self.grid_size**2:
            return regions
        grid = Regions.from_grid(regions.features, self.grid_size, self.grid_size, regions.mask)
        return replace(grid, global_feature=regions.global_feature)

    def forward(self, regions: Regions) -> Memory:
        """Return encoded regions; states of padding are finite. An image of zero rows alone keeps them all."""
        if self.zero_rows_are_padding:
            regions = mask_zero_features(regions)
        return super().forward(regions)

    def _embed(self, x: Float[Tensor, "B N D"], boxes: Float[Tensor, "B N 4"] | None) -> Float[Tensor, "B N D"]:
        return self._add_positions(self.input_norm(self.dropout(x)), boxes)


class DoubleResidual(Residual):
    """A residual connection and normalization inside another one, as in the releases of M2 and MD-SAN."""

    def __init__(self, config: MdsanConfig) -> None:
        super().__init__(config.dim, config.dropout, config.norm_first)
        self.inner = Residual(config.dim, config.dropout, norm_first=False)

    def post(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the sum of x and that of the sublayer's input and output, both normalized."""
        return super().post(x, self.inner.post(self.pre(x), y))


class MdsanLayer(DecoderLayer):
    """A decoder layer with double residual connections around its attentions, in the released variant."""

    def __init__(self, config: MdsanConfig) -> None:
        super().__init__(config)
        if config.variant == "released":
            self.self_attn_residual = DoubleResidual(config)
            self.cross_attn_residual = DoubleResidual(config)


class MdsanDecoder(TransformerDecoder):
    """The Transformer's decoder with embeddings neither scaled nor dropped out, and a table of positional encodings.

    The table is no parameter, but checkpoints store it: the released one cannot be computed, because Xavier
    initialization overwrote its sinusoids with random numbers.
    """

    position_table: Float[Tensor, "positions D"]
    layer_class = MdsanLayer

    def __init__(self, config: MdsanConfig) -> None:
        super().__init__(config)
        self.pad_token_id = config.pad_token_id
        table = sinusoids(torch.arange(config.positions, dtype=torch.get_default_dtype()), config.dim)
        table = nn.init.xavier_uniform_(table) if config.variant == "released" else table
        self.register_buffer("position_table", table)
        _set_scale(self, config)

    def reset_parameters(self) -> None:
        """Initialize all matrices from Xavier's uniform distribution, embeddings included."""
        init_xavier_uniform_(self)
        nn.init.xavier_uniform_(self.embedding.weight)

    def init_state(self, memory: Memory, num_rows: int) -> TransformerState:
        """Return empty caches, and the mask of the tokens that are no padding."""
        state = super().init_state(memory, num_rows)
        if self.pad_token_id is None:
            return state
        return replace(state, attention_mask=memory.mask.new_zeros(memory.mask.shape[0], num_rows, 0))

    def init_static_state(self, memory: Memory, num_rows: int, max_length: int) -> TransformerState | None:
        """Return static caches, or None where `max_length` exceeds the table of positions."""
        if max_length >= len(self.position_table):
            return None
        return super().init_static_state(memory, num_rows, max_length)

    def _embed(self, tokens: Int[Tensor, "B K T"], first: CacheLength) -> Float[Tensor, "B K T D"]:
        T = tokens.shape[-1]
        if isinstance(first, int) and first + T >= len(self.position_table):
            raise DataError(
                f"this model has positions for {len(self.position_table) - 1} tokens, not {first + T}; shorten the "
                f"captions or create it with positions={first + T + 1}"
            )
        positions = torch.arange(1, T + 1, device=tokens.device) + first
        return self.embedding(tokens) + self.position_table[positions]

    def _visible(self, tokens: Int[Tensor, "*rows"]) -> Bool[Tensor, "*rows"] | None:
        return None if self.pad_token_id is None else tokens.ne(self.pad_token_id)

    def _logits(self, x: Float[Tensor, "*rows D"], tokens: Int[Tensor, "*rows"]) -> Float[Tensor, "*rows V"]:
        """Return the logits after `tokens`; after padding all tokens are equally likely."""
        logits, visible = super()._logits(x, tokens), self._visible(tokens)
        return logits if visible is None else logits.masked_fill(~visible.unsqueeze(-1), 0.0)


class MeshedConfig(MdsanConfig):
    """Options of `meshed`: those of MD-SAN, with memory slots, single branches and no distances by default."""

    paper_defaults: ClassVar[Mapping[str, object]] = {}

    attention: Annotated[str, ATTENTIONS] = "memory"
    """memory (with `memory_slots`) or another attention."""
    distance: Annotated[str, DISTANCES] = "none"
    """Distance by which the scores are rescaled."""
    branches: Count = 1
    """Attentions that are averaged."""
    drop_branch: Probability = 0.0
    """Probability of dropping each of several branches in training."""
    variant: Literal["released", "paper"] = "paper"
    """paper: one residual connection and layer normalization around each attention; released: as in MD-SAN."""

    @property
    def scale_by_dim(self) -> bool:
        """Scores are divided by sqrt(d_k) in both variants."""
        return False

    def build_encoder(self) -> Encoder:
        """Return a new encoder with random weights."""
        return MeshedEncoder(self)

    def build_decoder(self) -> Decoder:
        """Return a new decoder with random weights."""
        return MeshedDecoder(self)


@dataclass(frozen=True, eq=False)
class MeshedMemory(Memory):
    """A memory with the states of each encoder layer, the last one's included."""

    levels: tuple[Float[Tensor, "B N D"], ...] = ()

    def __getitem__(self, index: slice | Tensor) -> Memory:
        """Return the memory of the images selected by a slice or an index tensor."""
        memory: Any = super().__getitem__(index)
        return replace(memory, levels=tuple(level[index] for level in self.levels))


class MeshedEncoder(MdsanEncoder):
    """MD-SAN's encoder, with the outputs of all layers in its memory."""

    def _prepare_memory(self, levels: list[Tensor], mask: Bool[Tensor, "B N"]) -> Memory:
        states = self.norm(levels[-1])
        return MeshedMemory(states, mask, masked_mean(states, mask), levels=(*levels[:-1], states))


class MeshedLayer(MdsanLayer):
    """A decoder layer whose cross-attention is applied to each of L encoder layers, with a gate for each."""

    def __init__(self, config: MeshedConfig) -> None:
        super().__init__(config)
        self.gates = nn.ModuleList(nn.Linear(2 * config.dim, config.dim) for _ in range(config.num_layers))

    def _cross_attend(
        self, x: Float[Tensor, "B Q D"], cross_kv: KeyValue, mask: Bool[Tensor, "B N"], *, need_weights: bool
    ) -> AttentionOutput:
        """Return the sum over levels of sigmoid(W [x; c]) * c over sqrt(L), c being x after attention to the level."""
        keys, values = cross_kv
        total, weights = torch.zeros_like(x), None
        for level, gate in enumerate(self.gates):
            kv = (keys[:, level], values[:, level])
            attended, weights = super()._cross_attend(x, kv, mask, need_weights=need_weights)
            total = total + gate(torch.cat([x, attended], dim=-1)).sigmoid() * attended
        return AttentionOutput(total * len(self.gates) ** -0.5, weights)


class MeshedDecoder(MdsanDecoder):
    """MD-SAN's decoder with meshed layers; its attention weights are those over the last level."""

    layer_class = MeshedLayer

    def precompute_cross_kv(self, memory: Memory) -> Memory:
        """Compute keys and values of all levels `(B, L, H, N, d)` for every layer.

        The memory of another model's encoder stands for L equal levels.
        """
        levels = memory.levels if isinstance(memory, MeshedMemory) else ()
        if len(levels) != len(self.layers):
            levels = (memory.states,) * len(self.layers)
        cross_kv: list[KeyValue] = []
        for layer in self.layers:
            pairs = [layer.cross_attn.keys_values(level, level) for level in levels]
            cross_kv.append((torch.stack([k for k, _ in pairs], dim=1), torch.stack([v for _, v in pairs], dim=1)))
        return replace(memory, cross_kv=tuple(cross_kv))
