"""Folders with one file per image, of AoANet (cocobu_att, cocobu_box), X-LAN, MCAN and `legenda convert`.

<id>.npy                                       features (n, D) or of a grid (H, W, D)
<id>.npz with feat                             the same; with boxes in 0..1 where `legenda convert` wrote it
<id>.npz with x, bbox, image_w, image_h        MCAN's: features (D, n), boxes in pixels
<id>.npz with x, boxes                         Rosita's: features (n, 2048), boxes in pixels
<id>.pth                                       grid-feats-vqa's: a grid (1, D, H, W), averaged to 7 x 7 as by RSTNet
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from legenda.data.features.base import UNNAMED
from legenda.data.features.per_image import PerImageStore, Sizes, scale_boxes
from legenda.data.features.validate import grid_boxes
from legenda.errors import DataError
from legenda.io import get_field, read_json, verified
from legenda.npz import load_arrays

NOTE = "legenda.json"
"""The file with the name of the extractor in folders that `legenda convert` writes."""
_WANTED = "name a folder with one .npz, .npy or .pth file per image"
_ENDINGS = (".npz", ".npy", ".pth")
_WIDTH = 2048
"""Channels of Bottom-Up features, which distinguishes the two orientations."""
_IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png")


class FolderStore(PerImageStore):
    """A folder of .npz, .npy or .pth files, with boxes in pixels in the folder *_box next to a folder *_att."""

    threads: ClassVar[int] = 4

    def __init__(self, path: Path, sizes_file: Path | None = None) -> None:
        self._names = verified(lambda: dict(_find_files(path)), path, _WANTED)
        box_folder = path.parent / f"{path.name.removesuffix('_att')}_box"
        usable = path.name.endswith("_att") and sizes_file is not None and box_folder.is_dir()
        self._box_folder = box_folder if usable else None
        note = read_json(path / NOTE) if (path / NOTE).is_file() else {"extractor": UNNAMED}
        extractor = get_field(note, "extractor", str, str(path / NOTE), "give it the name of the extractor as text")
        super().__init__(path, self._names, extractor=extractor, sizes_file=sizes_file, wanted=_WANTED)

    def _load(self, image: str) -> tuple[np.ndarray, np.ndarray | None]:
        with (self.path / self._names[image]).open("rb") as file:
            if self._names[image].endswith(".pth"):
                return _read_grid(file)
            features, boxes = read_arrays(file, image, self.sizes)
        if boxes is None and self._box_folder is not None:
            if image not in self.sizes:
                raise DataError(f"{self._sizes_file} has no size for image '{image}'; name annotations that have it")
            pixels = load_arrays(self._box_folder / f"{image}.npy")
            if isinstance(pixels, dict):
                raise ValueError("its boxes are several arrays")
            boxes = scale_boxes(pixels, *self.sizes[image])
        return features, boxes


def _find_files(folder: Path) -> Iterator[tuple[str, str]]:
    """Image and file name of every file, in the order of the names."""
    seen: dict[str, str] = {}
    for name in sorted(entry.name for entry in os.scandir(folder) if entry.name.endswith(_ENDINGS)):
        image = name[:-4]
        if image.lower().endswith(_IMAGE_SUFFIXES):
            image = image.rpartition(".")[0]
        if image in seen:
            raise DataError(f"{folder} holds {seen[image]} and {name} for one image; leave one of them out")
        seen[image] = name
        yield image, name


def read_arrays(file: Any, image: str, sizes: Sizes) -> tuple[np.ndarray, np.ndarray | None]:
    """Features and boxes of one .npz or .npy, from an open file."""
    arrays = load_arrays(file)
    if isinstance(arrays, np.ndarray):
        return _flatten(arrays)
    if "x" in arrays and "feat" not in arrays:
        x = arrays["x"]
        features, pixels = x if x.shape[-1] == _WIDTH else x.T, arrays.get("bbox", arrays.get("boxes"))
        if pixels is None:
            return features, None
        if "image_w" in arrays and "image_h" in arrays:
            width, height = float(arrays["image_w"]), float(arrays["image_h"])
        elif image in sizes:
            width, height = sizes[image]
        else:
            return features, None
        return features, scale_boxes(pixels, width, height)
    name = "feat" if "feat" in arrays else next(iter(arrays)) if len(arrays) == 1 else None
    if name is None:
        raise ValueError(f"it holds {', '.join(arrays) or 'nothing'}, and neither feat nor x")
    features, boxes = _flatten(arrays[name])
    return features, arrays.get("boxes", boxes)


def _read_grid(file: Any) -> tuple[np.ndarray, np.ndarray | None]:
    """Features (49, D) and boxes of the 7 x 7 cells that the grid (1, D, H, W) in an open .pth is averaged to."""
    import torch  # late: the other kinds are read without it

    grid = torch.load(file, map_location="cpu", weights_only=True)
    if not isinstance(grid, torch.Tensor) or grid.ndim != 4 or len(grid) != 1:
        found = tuple(grid.shape) if isinstance(grid, torch.Tensor) else f"a {type(grid).__name__}"
        raise ValueError(f"it holds {found}, where a grid of shape (1, D, H, W) is needed")
    return _flatten(torch.nn.functional.adaptive_avg_pool2d(grid[0].float(), 7).permute(1, 2, 0).numpy())


def _flatten(features: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """Features (n, D); those of a grid (H, W, D) in row-major order, with the boxes of its cells."""
    if features.ndim == 3:
        height, width, channels = features.shape
        return features.reshape(height * width, channels), grid_boxes(height, width)
    return features, None
