"""Build the attention modules of an `AttentionConfig`."""

from __future__ import annotations

from torch import nn

from legenda.attention.config import AttentionConfig
from legenda.attention.distance import DistanceRescale
from legenda.attention.geometry import GeometryBias, RelativeBias
from legenda.attention.memory import MemoryAttention
from legenda.attention.multi_branch import Branch, MultiBranchAttention
from legenda.attention.multi_head import MultiHeadAttention
from legenda.attention.normalization import create_norm
from legenda.attention.pair_geometry import PairGeometry
from legenda.attention.registries import ATTENTIONS, GEOMETRIES
from legenda.attention.x_linear import XLinearAttention
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
    names = ("geometry", "geometry_dim", "distance", "grid_size", "window", "window_size", "window_halo")
    return PairGeometry(num_layers, **options.values_of(*names), per_layer=options.geometry_per_layer)


def create_multi_head(
    options: AttentionConfig,
    dim: int,
    num_heads: int,
    *,
    dropout: float,
    inner_dim: int | None,
    output: bool,
    bias: bool,
) -> MultiHeadAttention:
    """Return scaled dot-product attention in heads, with the norms, biases and sizes that the options name."""
    heads = options.attention_heads or num_heads
    expected = dim if inner_dim is None else inner_dim
    width = heads * options.head_dim if options.head_dim else expected
    head_dim = options.query_head_dim or width // heads
    attention = MultiHeadAttention(
        dim,
        heads,
        dropout=dropout,
        inner_dim=width,
        query_dim=heads * head_dim,
        output=output,
        bias=bias,
        talking=options.talking_heads,
        drop_head=options.drop_head,
        query_norm=create_norm(options.norm, heads * head_dim) if "q" in options.norm_on else None,
        key_norm=create_norm(options.norm, heads * head_dim) if "k" in options.norm_on else None,
        score_bias=_create_bias(options, dim, heads, head_dim),
        rescale=_create_rescale(options, heads),
    )
    if not output and width != expected:
        attention.output = nn.Linear(width, expected)
    return attention


def create_x_linear(
    options: AttentionConfig,
    dim: int,
    num_heads: int,
    *,
    dropout: float,
    inner_dim: int | None,
    output: bool,  # noqa: ARG001
    bias: bool,  # noqa: ARG001
) -> XLinearAttention:
    """Return X-Linear attention; it has no projection after its heads, which are concatenated."""
    if inner_dim not in (None, dim):
        raise ConfigError(f"attention='x_linear' is as wide as the model, {dim} channels, not {inner_dim}")
    return XLinearAttention(
        dim,
        num_heads,
        dropout=dropout,
        score_bias=_create_bias(options, dim, num_heads, dim // num_heads),
        rescale=_create_rescale(options, num_heads),
    )


def create_memory(
    options: AttentionConfig,
    dim: int,
    num_heads: int,
    *,
    dropout: float,
    inner_dim: int | None,
    output: bool,
    bias: bool,
) -> MemoryAttention:
    """Return dot-product attention with memory slots; it is as wide as the model, with an output layer and biases."""
    if inner_dim not in (None, dim) or not output or not bias:
        raise ConfigError("attention='memory' belongs to a Transformer, whose attention is as wide as the model")
    return MemoryAttention(dim, num_heads, num_slots=options.memory_slots, dropout=dropout)


def _create_rescale(options: AttentionConfig, num_heads: int) -> nn.Module | None:
    if options.distance == "none":
        return None
    return DistanceRescale(num_heads, options.distance_scaling, options.distance_init)


def _create_bias(options: AttentionConfig, dim: int, num_heads: int, head_dim: int) -> nn.Module | None:
    create = GEOMETRIES.get(options.biases[0] if options.biases else options.geometry)
    return create(options, dim, num_heads, head_dim)


def no_bias(options: AttentionConfig, dim: int, num_heads: int, head_dim: int) -> None:
    """Return no bias, for geometries that the scores do not read."""


def create_relative_bias(options: AttentionConfig, dim: int, num_heads: int, head_dim: int) -> RelativeBias:  # noqa: ARG001
    """Return the bias of relative position embedding (MD-SAN, Table VII)."""
    return RelativeBias(num_heads, options.geometry_dim, head_dim=head_dim)


def create_geometry_bias(options: AttentionConfig, dim: int, num_heads: int, head_dim: int) -> GeometryBias:
    """Return NG-SAN's bias, or the sum of several (NG-SAN, Table 4)."""
    return GeometryBias(
        dim, num_heads, options.geometry_dim, options.biases, head_dim=head_dim, scaled=options.geometry_scaled
    )
