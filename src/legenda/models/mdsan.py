"""MD-SAN: distance-sensitive attention in several branches, in a Transformer (Ji et al., TMM 2023)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from legenda.attention import sinusoids
from legenda.decoding.kv_cache import CacheLength
from legenda.errors import DataError
from legenda.models.layers import init_xavier_uniform_
from legenda.models.transformer.decoder import TransformerDecoder, TransformerState
from legenda.models.transformer.encoder import TransformerEncoder
from legenda.regions import Memory, Regions, mask_zero_features


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
