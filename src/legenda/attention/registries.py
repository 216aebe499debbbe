"""The registered attentions, geometries, norms, distances and windows; each is imported when it is first used."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from legenda.plugins import Registry

if TYPE_CHECKING:
    from torch import Tensor, nn

NormOn = Literal["q", "k", "qk"]
Scaling = Literal["sigmoid", "linear", "quadratic", "scalar"]
DistanceInit = Literal["xavier", "one"]
Act = Literal["celu", "relu", "none"]
Bias = Literal["content", "query", "key"]
BIASES: tuple[Bias, ...] = ("content", "query", "key")


BOX_EMBEDDINGS = {
    "absolute": "legenda.attention.geometry:absolute_geometry",
    "sine": "legenda.attention.geometry:sine_positions",
}
"""Geometries that are added to the regions, by name: functions of the boxes and the number of channels."""


def geometric_biases(geometry: str) -> tuple[Bias, ...]:
    """Return the biases that a geometry names, such as "query+key"; empty where it names others."""
    parts = geometry.split("+")
    return tuple(bias for bias in BIASES if bias in parts) if set(parts) <= set(BIASES) else ()


ATTENTIONS: Registry[Callable[..., nn.Module]] = Registry(
    "attention",
    {
        "multi_head": "legenda.attention.builders:create_multi_head",
        "x_linear": "legenda.attention.builders:create_x_linear",
        "memory": "legenda.attention.builders:create_memory",
    },
)
"""Attentions among regions by name: functions of `(options, dim, num_heads, *, dropout, inner_dim, output, bias)`, as
in `create_self_attention`, that return a module with the call of `MultiHeadAttention`."""

GEOMETRIES: Registry[Callable[..., nn.Module | None]] = Registry(
    "geometry",
    {
        "none": "legenda.attention.builders:no_bias",
        **dict.fromkeys(BOX_EMBEDDINGS, "legenda.attention.builders:no_bias"),
        "relative": "legenda.attention.builders:create_relative_bias",
        **dict.fromkeys(BIASES, "legenda.attention.builders:create_geometry_bias"),
    },
)
"""Geometries by name: a function of `(options, dim, num_heads, head_dim)` that returns the attention's `score_bias`,
a module called with queries, keys and `Geometry`. For a geometry of a user's own `Geometry.embedded` holds the features
of `relative_geometry`, `(B, N, N, 4)`."""

NORMS: Registry[Callable[[int], nn.Module | None]] = Registry(
    "norm",
    {
        "none": "legenda.attention.normalization:no_norm",
        "in": "legenda.attention.normalization:MaskedInstanceNorm",
        "in_affine": "legenda.attention.normalization:affine_instance_norm",
        "ln": "legenda.attention.normalization:RowLayerNorm",
        "bn": "legenda.attention.normalization:MaskedBatchNorm",
    },
)
"""Norms by name: functions from a number of channels to a module called with x `(B, N, C)` and mask `(B, N)`."""

DISTANCES: Registry[Callable[[Tensor], Tensor | None]] = Registry(
    "distance",
    {
        "none": "legenda.attention.distance:no_distance",
        **{name: f"legenda.attention.distance:{name}" for name in ("manhattan", "euclidean", "chebyshev")},
    },
)
"""Distances by name: functions from the absolute differences of columns and rows of each pair to its distance."""

WINDOWS: Registry[Callable[[Tensor, int, int], tuple[Any, Any]]] = Registry(
    "window",
    {
        "none": "legenda.attention.windows:no_windows",
        "swin": "legenda.attention.windows:shifted_windows",
        "halo": "legenda.attention.windows:blocks_with_halo",
    },
)
"""Windows by name: from positions `(B, N, 2)` in cells, size and halo to what may be attended to, `(B, N, N)`, in the
first and every other layer and in the layers between."""
