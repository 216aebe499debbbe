"""Attention: one file per mechanism, equations numbered as in the papers."""

from legenda.attention.geometry import (
    GeometryBias,
    GeometryEmbedding,
    absolute_geometry,
    relative_geometry,
    sinusoids,
)
from legenda.attention.multi_head import Attended, MultiHeadAttention
from legenda.attention.normalization import MaskedBatchNorm, MaskedInstanceNorm, create_norm

__all__ = [
    "Attended",
    "GeometryBias",
    "GeometryEmbedding",
    "MaskedBatchNorm",
    "MaskedInstanceNorm",
    "MultiHeadAttention",
    "absolute_geometry",
    "create_norm",
    "relative_geometry",
    "sinusoids",
]
