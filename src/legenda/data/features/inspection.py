"""What a feature store holds: layout, images, regions, ranges, and the entries that cannot be read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from legenda.data.features.base import FeatureStore
from legenda.data.features.identity import ExtractorIdentity
from legenda.data.features.packed import PackedFeatureStore
from legenda.data.features.readers import open_features, split_kind
from legenda.errors import DataError

_LAYOUTS = {
    "PackedFeatureStore": "packed safetensors",
    "Hdf5Store": "HDF5",
    "TsvStore": "Bottom-Up TSV",
    "FolderStore": "folder of .npz, .npy or .pth files",
    "LmdbStore": "LMDB",
    "ShardedStore": "shards of packed safetensors",
    "DetectionStore": "detections",
}
_SAMPLE = 100
"""Images that are read without `verify`."""


def inspect_store(
    path: str | Path, *, verify: bool = False, progress: Callable[[int, int], None] = lambda *_: None
) -> tuple[dict[str, Any], list[str]]:
    """Return facts about a feature store by name, and its broken entries as sentences.

    verify: whether to read all images instead of 100, evenly spaced, and to compare them with their
    checksums. Raise DataError where the store cannot be opened.
    """
    store = open_features(path)
    count = len(store)
    positions = np.arange(count) if verify else np.unique(np.linspace(0, count - 1, _SAMPLE).astype(int))
    stats, problems = _read(store, positions, verify, progress)
    extractor = ExtractorIdentity.parse(store.extractor)
    file_path = split_kind(Path(path))[0]
    files = [file for file in file_path.rglob("*") if file.is_file()] if file_path.is_dir() else [file_path]
    facts = {
        "layout": _LAYOUTS.get(type(store).__name__, type(store).__name__),
        "size": f"{sum(file.stat().st_size for file in files) / 1e6:,.1f} MB",
        "images": f"{count:,}, such as {store.ids[0]}",
        "extractor": extractor.name + (f", version {extractor.version}" if extractor.version else ""),
        "read": f"{len(positions):,} images, {len(problems):,} broken",
        **stats,
    }
    return facts, problems


def _read(
    store: FeatureStore, positions: np.ndarray, verify: bool, progress: Callable[[int, int], None]
) -> tuple[dict[str, Any], list[str]]:
    """Read images one by one; return what their regions have in common, and the messages of broken entries."""
    counts, lows, highs, sums, areas, problems = [], [], [], [], [], []
    dtypes, widths = set(), set()
    for done, position in enumerate(positions.tolist(), start=1):
        try:
            arrays = store.read([position])
            if verify and isinstance(store, PackedFeatureStore):
                store.verify(position)
        except DataError as error:
            problems.append(str(error))
            continue
        features = arrays.features[0]
        dtypes.add(str(features.dtype))
        widths.add(features.shape[1])
        counts.append(len(features))
        lows.append(features.min())
        highs.append(features.max())
        sums.append(features.mean(dtype=np.float64))
        if arrays.boxes is not None:
            boxes = arrays.boxes[0]
            areas.append(float(((boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])).mean()))
        progress(done, len(positions))
    if not counts:
        return {}, problems
    facts = {
        "regions": f"{min(counts)} to {max(counts)} per image, mean {np.mean(counts):.1f}",
        "dimensions": ", ".join(map(str, sorted(widths))),
        "dtype": ", ".join(sorted(dtypes)),
        "features": f"{min(lows):.4g} to {max(highs):.4g}, mean {np.mean(sums):.4g}",
        "boxes": f"x1 y1 x2 y2 in 0..1, mean area {np.mean(areas):.3f}" if areas else "none",
    }
    return facts, problems
