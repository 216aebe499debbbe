"""Attention mechanisms, and the options of the self-attention among regions."""

from legenda.attention.additive import AdditiveAttention
from legenda.attention.aoa import AttentionOnAttention
from legenda.attention.config import (
    ATTENTIONS,
    AttentionConfig,
    AttentionKind,
    PairGeometry,
    register_attention,
)
from legenda.attention.distance import DISTANCES, DistanceRescale
from legenda.attention.geometry import GEOMETRIES, Geometry, GeometryBias, GeometryEmbedding, sinusoids
from legenda.attention.multi_head import AttentionOutput, MultiHeadAttention
from legenda.attention.normalization import MaskedBatchNorm, MaskedInstanceNorm, StdLayerNorm
from legenda.attention.x_linear import XLinearAttention

__all__ = [
    "ATTENTIONS",
    "DISTANCES",
    "GEOMETRIES",
    "AdditiveAttention",
    "AttentionConfig",
    "AttentionKind",
    "AttentionOnAttention",
    "AttentionOutput",
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
    "register_attention",
    "sinusoids",
]
