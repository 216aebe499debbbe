"""What the layers of an encoder read about the boxes of its regions, computed once per image."""

from __future__ import annotations

from torch import Tensor, nn

from legenda.attention.config import AttentionConfig
from legenda.attention.distance import DISTANCES, pair_distances
from legenda.attention.geometry import (
    BOX_EMBEDDINGS,
    Geometry,
    GeometryEmbedding,
    grid_positions,
    relative_geometry,
    sinusoidal_box_embedding,
)
from legenda.attention.windows import WINDOWS, local_windows
from legenda.regions import Regions


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
            embedded = [sinusoidal_box_embedding(features, config.geometry_dim) if relative else features]
        positions = grid_positions(boxes, mask, config.grid_size)
        distance = pair_distances(positions, self.distance)
        windows = local_windows(self.windows, positions, mask, size=config.window_size, halo=config.window_halo)
        return [
            Geometry(embedded[layer % len(embedded)] if embedded else None, distance, windows[layer % 2])
            for layer in range(self.num_layers)
        ]
