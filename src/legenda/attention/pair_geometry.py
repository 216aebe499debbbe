"""What the layers of an encoder read about the boxes of its regions, computed once per image."""

from __future__ import annotations

from torch import Tensor, nn

from legenda.attention.distance import pair_distances
from legenda.attention.geometry import (
    Geometry,
    GeometryEmbedding,
    grid_positions,
    relative_geometry,
    sinusoidal_box_embedding,
)
from legenda.attention.registries import BOX_EMBEDDINGS, geometric_biases
from legenda.attention.windows import local_windows
from legenda.regions import Regions


class PairGeometry(nn.Module):
    """The geometry of each pair of regions for each layer's attention.

    geometry: "none", "absolute", "sine", "relative" (MD-SAN, Table VII), "content", "query", "key" and sums of them
    (NG-SAN, Table 4), or one that is registered. geometry_dim: channels of its embedding. per_layer: an embedding for
    each layer instead of one for all. distance, window: their registered names; both are in cells, `grid_size` along
    each side of an image that is no grid. window_size, window_halo: cells of a window's side, and around it.
    """

    def __init__(
        self,
        num_layers: int,
        *,
        geometry: str = "none",
        geometry_dim: int = 64,
        per_layer: bool = False,
        distance: str = "none",
        grid_size: int = 7,
        window: str = "none",
        window_size: int = 4,
        window_halo: int = 2,
    ) -> None:
        super().__init__()
        self.num_layers, self.geometry, self.geometry_dim = num_layers, geometry, geometry_dim
        self.distance, self.grid_size = distance, grid_size
        self.window, self.window_size, self.window_halo = window, window_size, window_halo
        count = (num_layers if per_layer else 1) if geometric_biases(geometry) else 0
        self.embeddings = nn.ModuleList(GeometryEmbedding(geometry_dim) for _ in range(count))

    def forward(self, regions: Regions) -> list[Geometry]:
        """Return one Geometry for each layer, without what the attention does not read."""
        boxes, mask = regions.boxes, regions.mask_or_ones
        if boxes is None or self.geometry == self.distance == self.window == "none":
            return [Geometry()] * self.num_layers
        embedded: list[Tensor] = [embed(boxes, mask) for embed in self.embeddings]
        if not embedded and self.geometry not in ("none", *BOX_EMBEDDINGS):
            features = relative_geometry(boxes, mask)
            embedded = [
                sinusoidal_box_embedding(features, self.geometry_dim) if self.geometry == "relative" else features
            ]
        positions = grid_positions(boxes, mask, self.grid_size)
        distance = pair_distances(positions, self.distance)
        windows = local_windows(self.window, positions, mask, size=self.window_size, halo=self.window_halo)
        return [
            Geometry(embedded[layer % len(embedded)] if embedded else None, distance, windows[layer % 2])
            for layer in range(self.num_layers)
        ]
