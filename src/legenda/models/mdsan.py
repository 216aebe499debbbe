"""MD-SAN: distance-sensitive attention in several branches, between Transformer halves (Ji et al., TMM 2023)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from legenda.attention import sinusoids
from legenda.attention.distance import Distance
from legenda.decoding.kv_cache import CacheLength
from legenda.errors import UserError
from legenda.models.encoder import xavier
from legenda.models.transformer import TransformerConfig, TransformerDecoder, TransformerEncoder, TransformerState
from legenda.regions import Memory, Regions, mask_zero_features


@dataclass(frozen=True, kw_only=True)
class MdsanConfig(TransformerConfig):
    """Sizes and slots of `mdsan` and its ablations; the defaults are those of the released code."""

    num_layers: int = 3
    """Layers of the encoder, and of the decoder."""
    distance: Distance = "manhattan"
    """The distance that rescales the scores (Eq. 6 and Table VII); none leaves them."""
    branches: int = 3
    """Attentions whose mean is taken (Eq. 9)."""
    drop_branch: float = 0.4
    """Probability that training leaves out each of several branches (Eqs. 10 and 11)."""
    reading: Literal["released", "paper"] = "released"
    """released: a residual connection and a layer normalisation inside each branch, and two of them around each
    attention of the decoder, where the paper has one; positions of words that are random but never trained, where the
    paper has sinusoids."""
    positions: int = 55
    """Words that a caption may have, and a first place that none takes."""
    pad_id: int | None = None
    """The word that fills up captions, which no other one hears; None where there is none."""
    zero_rows_are_padding: bool = True
    """Regions whose features are all 0 do not count, besides those that the mask leaves out."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.positive("positions")

    @property
    def branch_norm(self) -> bool:
        """Whether each branch has a residual connection and a layer normalisation of its own."""
        return self.reading == "released" if self.branch_residual is None else self.branch_residual

    def build_encoder(self) -> MdsanEncoder:
        """The encoder of section IV."""
        return MdsanEncoder(self)

    def build_decoder(self) -> MdsanDecoder:
        """The decoder of section IV."""
        return MdsanDecoder(self)


class MdsanEncoder(TransformerEncoder):
    """Linear, ReLU, layer normalisation, and L layers of attention as the options name it."""

    def __init__(self, config: MdsanConfig) -> None:
        super().__init__(config, last_norm=config.norm_first)
        self.input_norm = nn.LayerNorm(config.dim)
        self.zero_rows_are_padding = config.zero_rows_are_padding
        self.grid_size = config.grid_size

    def place(self, regions: Regions) -> Regions:
        """Return the regions with the boxes of a grid's cells, where they have none and number `grid_size` squared."""
        if regions.boxes is not None or regions.features.shape[1] != self.grid_size**2:
            return regions
        grid = Regions.from_grid(regions.features, self.grid_size, self.grid_size, regions.mask)
        return replace(grid, global_feature=regions.global_feature)

    def forward(self, regions: Regions) -> Memory:
        """Encoded regions; rows of padded regions are finite and mean nothing.

        A picture of nothing but zero rows keeps them all.
        """
        if self.zero_rows_are_padding:
            regions = mask_zero_features(regions)
        return super().forward(regions)

    def _placed(self, x: Float[Tensor, "B N D"], boxes: Float[Tensor, "B N 4"] | None) -> Float[Tensor, "B N D"]:
        return self._with_places(self.input_norm(self.dropout(x)), boxes)


class MdsanDecoder(TransformerDecoder):
    """The Transformer's decoder, whose words are neither scaled nor dropped out and take their places from a table.

    The table is no parameter, but checkpoints hold it: that of the released code cannot be computed, because its random
    numbers were written over the sinusoids.
    """

    places: Float[Tensor, "positions D"]

    def __init__(self, config: MdsanConfig) -> None:
        released = config.reading == "released"
        super().__init__(
            config, double_norm=released, last_norm=config.norm_first, output_bias=False, pad_id=config.pad_id
        )
        table = sinusoids(torch.arange(config.positions, dtype=torch.get_default_dtype()), config.dim)
        self.register_buffer("places", nn.init.xavier_uniform_(table) if released else table)

    def reset_parameters(self) -> None:
        """Xavier's numbers, words included."""
        xavier(self)
        nn.init.xavier_uniform_(self.embedding.weight)

    def init_static_state(self, memory: Memory, num_rows: int, max_length: int) -> TransformerState | None:
        """No words yet; None where there are not so many places, which matters only if captions become so long."""
        return super().init_static_state(memory, num_rows, max_length) if max_length < len(self.places) else None

    def _embed(self, tokens: Int[Tensor, "B K T"], first: CacheLength) -> Float[Tensor, "B K T D"]:
        T = tokens.shape[-1]
        if isinstance(first, int) and first + T >= len(self.places):
            raise UserError(
                f"this model has places for {len(self.places) - 1} words, not {first + T}; give shorter captions or "
                f"create it with positions={first + T + 1}"
            )
        places = torch.arange(1, T + 1, device=tokens.device) + first
        return self.embedding(tokens) + self.places[places]
