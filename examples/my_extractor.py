"""An extractor of your own: one function. This one cuts the picture into a grid of 4 x 4 mean colours.

It is here to be copied: put a network of yours in its place and keep the form of what it returns.
"""

import numpy as np
from PIL import Image

GRID = 4


def extract(pictures: list[Image.Image]) -> list[tuple[np.ndarray, np.ndarray | None]]:
    """For each RGB picture: features (regions, channels) and boxes (regions, 4) as x1 y1 x2 y2 in 0..1, or None."""
    edges = np.arange(GRID) / GRID
    top, left = (corner.ravel() for corner in np.meshgrid(edges, edges, indexing="ij"))
    boxes = np.stack([left, top, left + 1 / GRID, top + 1 / GRID], axis=1)
    cells = [np.asarray(picture.resize((GRID, GRID), Image.Resampling.BOX)) for picture in pictures]
    return [(cell.reshape(-1, 3) / 255.0, boxes) for cell in cells]
