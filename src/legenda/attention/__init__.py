"""Attention: one file per mechanism, equations numbered as in the papers."""

from legenda.attention.additive import AdditiveAttention
from legenda.attention.aoa import AttentionOnAttention
from legenda.attention.config import AttentionOptions, PairGeometry, create_self_attention
from legenda.attention.distance import DistanceRescale
from legenda.attention.geometry import (
    Geometry,
    GeometryBias,
    GeometryEmbedding,
    absolute_geometry,
    relative_geometry,
    sinusoids,
)
from legenda.attention.multi_branch import Branches
from legenda.attention.multi_head import Attended, MultiHeadAttention
from legenda.attention.normalization import MaskedBatchNorm, MaskedInstanceNorm, StdLayerNorm, create_norm
from legenda.attention.x_linear import XLinearAttention

__all__ = [
    "AdditiveAttention",
    "Attended",
    "AttentionOnAttention",
    "AttentionOptions",
    "Branches",
    "DistanceRescale",
    "Geometry",
    "GeometryBias",
    "GeometryEmbedding",
    "MaskedBatchNorm",
    "MaskedInstanceNorm",
    "MultiHeadAttention",
    "PairGeometry",
    "StdLayerNorm",
    "XLinearAttention",
    "absolute_geometry",
    "create_norm",
    "create_self_attention",
    "relative_geometry",
    "sinusoids",
]
