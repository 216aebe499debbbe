"""Build the attention modules of an `AttentionConfig`."""

from __future__ import annotations

from torch import nn

from legenda.attention.config import ATTENTIONS, AttentionConfig
from legenda.attention.multi_branch import Branch, MultiBranchAttention
from legenda.attention.pair_geometry import PairGeometry
from legenda.errors import ConfigError


def create_self_attention(
    options: AttentionConfig,
    dim: int,
    num_heads: int,
    *,
    layer: int = 0,
    dropout: float,
    inner_dim: int | None = None,
    output: bool = True,
    bias: bool = True,
) -> nn.Module:
    """Return the attention among regions of one layer, counted from 0.

    inner_dim, output, bias: as in MultiHeadAttention; they set the width of the output whatever the sizes of the heads.
    Branches are dropped in training only where there are several.
    """
    width = dim if inner_dim is None or output else inner_dim
    count = options.branches_of(layer)
    attentions = [
        ATTENTIONS.get(options.attention)(
            options, dim, num_heads, dropout=dropout, inner_dim=inner_dim, output=output, bias=bias
        )
        for _ in range(count)
    ]
    if options.branch_norm:
        if width != dim:
            raise ConfigError(f"branch_residual needs attention as wide as the model, {dim} channels, not {width}")
        branches = [Branch(attention, dim, dropout) for attention in attentions]
        return MultiBranchAttention(branches, width, options.drop_branch if count > 1 else 0.0)
    return attentions[0] if count == 1 else MultiBranchAttention(attentions, width, options.drop_branch)


def create_pair_geometry(options: AttentionConfig, num_layers: int) -> PairGeometry:
    """Return what computes the `Geometry` of each layer's attention, as the options name it."""
    return PairGeometry(
        num_layers,
        geometry=options.geometry,
        geometry_dim=options.geometry_dim,
        per_layer=options.geometry_per_layer,
        distance=options.distance,
        grid_size=options.grid_size,
        window=options.window,
        window_size=options.window_size,
        window_halo=options.window_halo,
    )
