"""MD-SAN: distance-sensitive attention in several branches, in a Transformer (Ji et al., TMM 2023)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from legenda.attention import sinusoids
from legenda.attention.distance import Distance
from legenda.decoding.kv_cache import CacheLength
from legenda.errors import DataError
from legenda.models.layers import init_xavier_uniform_
from legenda.models.transformer import TransformerConfig, TransformerDecoder, TransformerEncoder, TransformerState
from legenda.regions import Memory, Regions, mask_zero_features


@dataclass(frozen=True, kw_only=True)
class MdsanConfig(TransformerConfig):
    """Options of `mdsan` and its ablations; the defaults are those of the released code."""

    num_layers: int = 3
    """Layers of the encoder, and of the decoder."""
    distance: Distance = "manhattan"
    """Distance by which the scores are rescaled (Eq. 6 and Table VII)."""
    branches: int = 3
    """Attentions that are averaged (Eq. 9)."""
    drop_branch: float = 0.4
    """Probability of dropping each of several branches in training (Eqs. 10 and 11)."""
    reading: Literal["released", "paper"] = "released"
    """released: a residual connection and layer normalization inside each branch, two of them around each attention of
    the decoder, and positional encodings that are random and not trained. paper: one of them around each attention, and
    sinusoids."""
    positions: int = 55
    """Rows of the table of positions: the largest number of tokens, and one; the first row is not used."""
    pad_token_id: int | None = None
    """Token that pads captions, to which no other one attends; None for no such token."""
    zero_rows_are_padding: bool = True
    """Whether regions whose features are all 0 are masked, besides those that the mask excludes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_positive("positions")

    @property
    def branch_norm(self) -> bool:
        """Whether each branch has a residual connection and layer normalization."""
        return self.reading == "released" if self.branch_residual is None else self.branch_residual

    def build_encoder(self) -> MdsanEncoder:
        """Return the encoder of section IV."""
        return MdsanEncoder(**self.encoder_arguments())

    def build_decoder(self) -> MdsanDecoder:
        """Return the decoder of section IV."""
        return MdsanDecoder(**self.decoder_arguments())

    def encoder_arguments(self) -> dict[str, Any]:
        """Return the keyword arguments of the encoder."""
        return {
            **super().encoder_arguments(),
            "last_norm": self.norm_first,
            "grid_size": self.grid_size,
            "zero_rows_are_padding": self.zero_rows_are_padding,
        }

    def decoder_arguments(self) -> dict[str, Any]:
        """Return the keyword arguments of the decoder."""
        released = self.reading == "released"
        return {
            **super().decoder_arguments(),
            "double_norm": released,
            "last_norm": self.norm_first,
            "output_bias": False,
            "pad_token_id": self.pad_token_id,
            "max_positions": self.positions,
            "random_positions": released,
        }


class MdsanEncoder(TransformerEncoder):
    """Linear, ReLU, layer normalization, and L layers of the configured attention."""

    def __init__(self, *, dim: int, grid_size: int, zero_rows_are_padding: bool, **arguments: Any) -> None:
        """Create the encoder; further arguments as in TransformerEncoder.

        grid_size: `grid_size` squared regions without boxes are the cells of a grid. zero_rows_are_padding: whether
        regions whose features are all 0 are masked.
        """
        super().__init__(dim=dim, **arguments)
        self.input_norm = nn.LayerNorm(dim)
        self.zero_rows_are_padding = zero_rows_are_padding
        self.grid_size = grid_size

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


class MdsanDecoder(TransformerDecoder):
    """The Transformer's decoder with embeddings neither scaled nor dropped out, and a table of positional encodings.

    The table is no parameter, but checkpoints store it: the released one cannot be computed, because Xavier
    initialization overwrote its sinusoids with random numbers.
    """

    position_table: Float[Tensor, "positions D"]

    def __init__(self, *, dim: int, max_positions: int, random_positions: bool, **arguments: Any) -> None:
        """Create the decoder; further arguments as in TransformerDecoder.

        max_positions: rows of the table, of which the first is not used. random_positions: whether they are random
        numbers instead of sinusoids.
        """
        super().__init__(dim=dim, **arguments)
        table = sinusoids(torch.arange(max_positions, dtype=torch.get_default_dtype()), dim)
        self.register_buffer("position_table", nn.init.xavier_uniform_(table) if random_positions else table)

    def reset_parameters(self) -> None:
        """Initialize all matrices from Xavier's uniform distribution, embeddings included."""
        init_xavier_uniform_(self)
        nn.init.xavier_uniform_(self.embedding.weight)

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
