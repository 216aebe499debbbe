"""Attention mechanisms, and the options of the self-attention among regions."""

from legenda.attention.additive import AdditiveAttention
from legenda.attention.aoa import AttentionOnAttention
from legenda.attention.config import ATTENTIONS, GEOMETRIES, AttentionConfig, PairGeometry
from legenda.attention.distance import DISTANCES, WINDOWS, DistanceRescale
from legenda.attention.geometry import (
    Geometry,
    GeometryBias,
    GeometryEmbedding,
    absolute_geometry,
    relative_geometry,
    sinusoids,
)
from legenda.attention.multi_branch import MultiBranchAttention
from legenda.attention.multi_head import AttentionOutput, MultiHeadAttention
from legenda.attention.normalization import NORMS, MaskedBatchNorm, MaskedInstanceNorm, StdLayerNorm, create_norm
from legenda.attention.x_linear import XLinearAttention

__all__ = [
    "ATTENTIONS",
    "DISTANCES",
    "GEOMETRIES",
    "NORMS",
    "WINDOWS",
    "AdditiveAttention",
    "AttentionConfig",
    "AttentionOnAttention",
    "AttentionOutput",
    "DistanceRescale",
    "Geometry",
    "GeometryBias",
    "GeometryEmbedding",
    "MaskedBatchNorm",
    "MaskedInstanceNorm",
    "MultiBranchAttention",
    "MultiHeadAttention",
    "PairGeometry",
    "StdLayerNorm",
    "XLinearAttention",
    "absolute_geometry",
    "create_norm",
    "relative_geometry",
    "sinusoids",
]
