"""Options of the self-attention among regions, the modules built from them, and the geometry that they read.

An attention or a geometry of a user's own joins those here by `legenda.register_attention` and `register_geometry`. An
attention declares the options that it honors; all others are refused, and `attention.trial` tries what is registered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, TypeVar

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from legenda.attention.distance import (
    DISTANCES,
    WINDOWS,
    DistanceInit,
    DistanceRescale,
    Scaling,
    local_windows,
    pair_distances,
)
from legenda.attention.geometry import (
    BOX_EMBEDDINGS,
    GEOMETRIES,
    Bias,
    Geometry,
    GeometryEmbedding,
    geometric_biases,
    grid_positions,
    relative_geometry,
    sinusoidal_box_embedding,
)
from legenda.attention.memory import MemoryAttention
from legenda.attention.multi_branch import Branch, MultiBranchAttention
from legenda.attention.multi_head import MultiHeadAttention
from legenda.attention.normalization import NORMS
from legenda.attention.trial import try_attention
from legenda.attention.x_linear import XLinearAttention
from legenda.config import Config, Count, NonNegativeCount, PositiveInt, Probability, merge
from legenda.errors import ConfigError, did_you_mean
from legenda.regions import Regions
from legenda.registry import Registry

B = TypeVar("B", bound=Callable[..., nn.Module])


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
    head_dim, create_norm = options.query_head_dim or width // heads, NORMS.get(options.norm)
    score_bias, rescale = options.build_score_terms(dim, heads, head_dim)
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
        query_norm=create_norm(heads * head_dim) if "q" in options.norm_on else None,
        key_norm=create_norm(heads * head_dim) if "k" in options.norm_on else None,
        score_bias=score_bias,
        rescale=rescale,
    )
    if not output and width != expected:
        attention.output = nn.Linear(width, expected)
    return attention


def _create_x_linear(
    options: AttentionConfig, dim: int, num_heads: int, *, dropout: float, inner_dim: int | None, **_: bool
) -> XLinearAttention:
    """Return X-Linear attention; it has no projection after its heads, which are concatenated."""
    if inner_dim not in (None, dim):
        raise ConfigError(f"attention='x_linear' is as wide as the model, {dim} channels, not {inner_dim}")
    score_bias, rescale = options.build_score_terms(dim, num_heads, dim // num_heads)
    return XLinearAttention(dim, num_heads, dropout=dropout, score_bias=score_bias, rescale=rescale)


def _create_memory(
    options: AttentionConfig, dim: int, num_heads: int, *, dropout: float, inner_dim: int | None, **how: bool
) -> MemoryAttention:
    """Return dot-product attention with memory slots; it is as wide as the model, with an output layer and biases."""
    if inner_dim not in (None, dim) or not all(how.values()):  # output and bias
        raise ConfigError("attention='memory' belongs to a Transformer, whose attention is as wide as the model")
    return MemoryAttention(dim, num_heads, num_slots=options.memory_slots, dropout=dropout)


@dataclass(frozen=True)
class AttentionKind:
    """An attention among regions that `AttentionConfig.attention` names.

    build: a function of `(options, dim, num_heads, *, dropout, inner_dim, output, bias)`, as in `build_attention`, that
    returns a module with the call of `MultiHeadAttention`. honors: the names in `DECLARED` that it takes. options: the
    class of options of its own, the values of `AttentionConfig.attention_options`.
    """

    build: Callable[..., nn.Module]
    honors: frozenset[str] = frozenset()
    options: type[Config] | None = None


_HEADS = ("attention_heads", "head_dim", "query_head_dim", "talking_heads", "drop_head")
DECLARED = ("norm", "geometry", "distance", "window", *_HEADS, "memory_slots")
"""Fields of `AttentionConfig` that act inside an attention, which therefore declares whether it honors them."""

ATTENTIONS: Registry[AttentionKind] = Registry(
    "attention",
    {
        "multi_head": AttentionKind(create_multi_head, frozenset(DECLARED) - {"memory_slots"}),
        "x_linear": AttentionKind(_create_x_linear, frozenset({"geometry", "distance", "window"})),
        "memory": AttentionKind(_create_memory, frozenset({"memory_slots"})),
    },
)
"""Attentions among regions by name."""


def register_attention(
    name: str, *, honors: Iterable[str] = (), options: type[Config] | None = None
) -> Callable[[B], B]:
    """Return a decorator that adds a function that builds an attention among regions, as `AttentionKind.build`.

    honors: the names in `DECLARED` that the attention takes; a model that sets another of them is refused. options: the
    class of options of its own; `options.own_options` is an instance of it. Raise ConfigError for a name that
    `DECLARED` lacks.
    """
    honored = frozenset((honors,) if isinstance(honors, str) else honors)
    for field in honored - {*DECLARED}:
        raise ConfigError(f"attention {name!r} cannot honor {field!r}; {did_you_mean(field, DECLARED)}")

    def decorate(build: B) -> B:
        ATTENTIONS.add(name, AttentionKind(build, honored, options), build.__module__)
        return build

    return decorate


class AttentionConfig(Config):
    """Options of the self-attention among regions; every encoder with one takes them, in any combination."""

    attention: Annotated[str, ATTENTIONS] = "multi_head"
    """Kind of attention: multi_head (dot products); x_linear, which takes no norm, no options of heads and no other
    width; memory, which takes no geometry of pairs, distances and windows either; or a registered one."""
    attention_options: Mapping[str, object] = Field(default_factory=dict)
    """Options that a registered attention has for itself."""
    memory_slots: PositiveInt = 40
    """Learned keys and values besides the regions', with attention="memory" (Cornia et al., CVPR 2020)."""
    norm: Annotated[str, NORMS] = "none"
    """Normalization inside the encoder's attention (NG-SAN, Table 2)."""
    norm_on: Literal["q", "k", "qk"] = "q"
    """Whether the norm is applied to queries, keys or both (NG-SAN, Table 3)."""
    geometry: str = "none"
    """Geometry of the encoder: none, absolute, sine and relative (MD-SAN, Table VII), or content, query, key and sums
    of them, as in "query+key" (NG-SAN, Table 4)."""
    geometry_dim: PositiveInt = 64
    """Channels of the geometry embedding, and of Q' and K' in each head."""
    geometry_per_layer: bool = False
    """A geometry embedding for each layer instead of one for all."""
    geometry_scaled: bool = True
    """The geometric bias is divided by sqrt(d_k) like Q K^T; False leaves it outside."""
    distance: Annotated[str, DISTANCES] = "none"
    """Distance by which the scores are rescaled (MD-SAN, Eq. 6 and Table VII)."""
    distance_scaling: Scaling = "sigmoid"
    """Factor of a head as a function of the distance (MD-SAN, Eqs. 7, 17 and 18, Table VIII)."""
    distance_init: DistanceInit = "xavier"
    """Initialization of the scaling function: as in the released training, or w = 1 and v = 0."""
    grid_size: Count = 7
    """Cells along each side of an image whose regions are no grid; distances and windows are in cells."""
    window: Annotated[str, WINDOWS] = "none"
    """Local windows of attention (MD-SAN, Table IX)."""
    window_size: Count = 4
    """Side of a window or of a block, in cells."""
    window_halo: NonNegativeCount = 2
    """Cells around a block that its regions also attend to ("halo")."""
    branches: Count = 1
    """Attentions that are averaged (MD-SAN, Eq. 9)."""
    drop_branch: Probability = 0.0
    """Probability of dropping each of several branches in training (MD-SAN, Eqs. 10 and 11)."""
    branch_layers: tuple[Count, ...] = ()
    """Layers, counted from 1, that have several branches (MD-SAN, Table XII); empty for all."""
    branch_residual: bool | None = None
    """A residual connection and layer normalization inside each branch; None for the default of `variant`."""
    attention_heads: Count | None = None
    """Heads of this attention; None for num_heads (MD-SAN, Table X)."""
    head_dim: PositiveInt | None = None
    """Channels of each head; None divides the width among the heads."""
    query_head_dim: PositiveInt | None = None
    """Channels of queries and keys in each head where they differ from the values' (MD-SAN, Table X, "ExtendQK")."""
    talking_heads: bool = False
    """Linear maps over the heads before and after the softmax (MD-SAN, Table X)."""
    drop_head: Probability = 0.0
    """Probability of zeroing each head in training: drop branch with heads as branches (MD-SAN, Table XI)."""

    @model_validator(mode="after")
    def _check_declared(self) -> AttentionConfig:
        kind = ATTENTIONS.get(self.attention)
        refused = [f"{name}={value!r}" for name, value in self.declared.items() if name not in kind.honors]
        if refused:
            way = "declare it in register_attention(..., honors=)" if self.attention in ATTENTIONS.registered else ""
            way = way or "choose another attention, such as multi_head"
            raise ConfigError(
                f"attention={self.attention!r} does not honor {', '.join(refused)}; leave it out, or {way}"
            )
        if self.attention_options and kind.options is None:
            raise ConfigError(
                f"attention={self.attention!r} has no options of its own, so attention_options must be empty, not "
                f"{dict(self.attention_options)!r:.80}"
            )
        if kind.options is not None:
            merge(kind.options, self.attention_options, "attention_options")  # raises
        return self

    def check(self, dim: int, num_layers: int) -> None:
        """Raise ConfigError where the options contradict each other or the size of the encoder.

        dim, num_layers: its channels and layers.
        """
        if self.geometry not in GEOMETRIES and not self.biases:
            known = ", ".join(GEOMETRIES)
            raise ConfigError(f"geometry={self.geometry!r} is unknown; choose from {known}, or a sum such as query+key")
        if self.geometry in BOX_EMBEDDINGS and dim % 8:
            raise ConfigError(f"geometry={self.geometry!r} needs a dim that is a multiple of 8, not {dim}")
        if self.geometry == "relative" and self.geometry_dim % 8:
            raise ConfigError(f"geometry='relative' needs a multiple of 8 as geometry_dim, not {self.geometry_dim}")
        if self.attention_heads and not self.head_dim and dim % self.attention_heads:
            raise ConfigError(
                f"dim={dim} must be a multiple of attention_heads={self.attention_heads}, or set head_dim"
            )
        if (last := max(self.branch_layers, default=0)) > num_layers:
            raise ConfigError(f"branch_layers names layer {last} of {num_layers}; leave it out or add layers")

    @property
    def declared(self) -> dict[str, object]:
        """The options in `DECLARED` that are set, without a geometry that is added to the regions before."""
        values = {name: getattr(self, name) for name in DECLARED}
        if self.geometry in BOX_EMBEDDINGS:
            values["geometry"] = "none"
        return {name: value for name, value in values.items() if value != AttentionConfig.model_fields[name].default}

    @property
    def own_options(self) -> object:
        """The attention's own options, an instance of the class that it is registered with; None without one."""
        kind = ATTENTIONS.get(self.attention)
        return None if kind.options is None else merge(kind.options, self.attention_options, "attention_options")

    @property
    def biases(self) -> tuple[Bias, ...]:
        """The geometric biases of `geometry`; empty for others."""
        return geometric_biases(self.geometry)

    @property
    def needs_boxes(self) -> bool:
        """Whether any option reads the boxes."""
        return not self.geometry == self.distance == self.window == "none"

    @property
    def branch_norm(self) -> bool:
        """Whether each branch has a residual connection and layer normalization."""
        return bool(self.branch_residual)

    def build_score_terms(self, dim: int, num_heads: int, head_dim: int) -> tuple[nn.Module | None, nn.Module | None]:
        """Return new modules that change the scores, `score_bias` and `rescale`; None where no option asks for one.

        `score_bias(query (B, N, D), key (B, N, D), geometry) -> (B, H, N, N)` is added to Q K^T;
        `rescale(scores (B, H, N, N), geometry) -> (B, H, N, N)` of the divided and biased scores.
        head_dim: the scores with their bias are divided by its root, or 1.
        """
        create_bias = GEOMETRIES.get(self.biases[0] if self.biases else self.geometry)
        rescale = None
        if self.distance != "none":
            rescale = DistanceRescale(num_heads, self.distance_scaling, self.distance_init)
        return create_bias(self, dim, num_heads, head_dim), rescale

    def branches_of(self, layer: int) -> int:
        """Return the number of branches of a layer, counted from 0."""
        return self.branches if not self.branch_layers or layer + 1 in self.branch_layers else 1

    def build_attention(
        self,
        dim: int,
        num_heads: int,
        *,
        layer: int = 0,
        dropout: float,
        inner_dim: int | None = None,
        output: bool = True,
        bias: bool = True,
    ) -> nn.Module:
        """Return a new attention among regions for one layer, counted from 0.

        inner_dim, output, bias: as in MultiHeadAttention; they set the width of the output whatever the sizes of the
        heads. Branches are dropped in training only where there are several.
        """
        width = dim if inner_dim is None or output else inner_dim
        count = self.branches_of(layer)
        build, how = ATTENTIONS.get(self.attention).build, {"inner_dim": inner_dim, "output": output, "bias": bias}
        is_meta = torch.empty(0).device.type == "meta"  # where nothing can be computed
        if layer == 0 and not is_meta and self.attention in ATTENTIONS.registered:
            declared = {name: AttentionConfig.model_fields[name].default for name in self.declared}
            try_attention(self, build, dim, num_heads, width, declared=declared, **how)
        attentions = [build(self, dim, num_heads, dropout=dropout, **how) for _ in range(count)]
        if self.branch_norm:
            if width != dim:
                raise ConfigError(f"branch_residual needs attention as wide as the model, {dim} channels, not {width}")
            branches = [Branch(attention, dim, dropout) for attention in attentions]
            return MultiBranchAttention(branches, width, self.drop_branch if count > 1 else 0.0)
        return attentions[0] if count == 1 else MultiBranchAttention(attentions, width, self.drop_branch)


class PairGeometry(nn.Module):
    """The geometry of each pair of regions for the attention of each of L layers.

    Distances and windows are in cells, `grid_size` along each side of an image that is no grid.
    """

    def __init__(self, config: AttentionConfig, num_layers: int) -> None:
        """Create the geometry embeddings: one for each layer, or one for all, where a bias of the attention has any."""
        super().__init__()
        self.config, self.num_layers = config, num_layers
        self.distance, self.windows = DISTANCES.get(config.distance), WINDOWS.get(config.window)
        count = (num_layers if config.geometry_per_layer else 1) if config.biases else 0
        self.embeddings = nn.ModuleList(GeometryEmbedding(config.geometry_dim) for _ in range(count))

    def forward(self, regions: Regions) -> list[Geometry]:
        """Return one Geometry for each layer, without what the attention does not read."""
        config, boxes, mask = self.config, regions.boxes, regions.mask_or_ones
        if boxes is None or not config.needs_boxes:
            return [Geometry()] * self.num_layers
        embedded: list[Tensor] = [embed(boxes, mask) for embed in self.embeddings]
        if not embedded and config.geometry not in ("none", *BOX_EMBEDDINGS):
            features = relative_geometry(boxes, mask)
            relative = config.geometry == "relative"
            own = features.to(regions.features.dtype)  # for a registered geometry, whose weights have this dtype
            embedded = [sinusoidal_box_embedding(features, config.geometry_dim) if relative else own]
        positions = grid_positions(boxes, mask, config.grid_size)
        distance = pair_distances(positions, self.distance)
        windows = local_windows(self.windows, positions, mask, size=config.window_size, halo=config.window_halo)
        return [
            Geometry(embedded[layer % len(embedded)] if embedded else None, distance, windows[layer % 2])
            for layer in range(self.num_layers)
        ]
