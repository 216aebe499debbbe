"""Images and packed feature stores for the tests of stores."""

from pathlib import Path

import numpy as np

from legenda.data.features import PackedFeatureStore, write_store

Image = tuple[str, np.ndarray, np.ndarray | None]


def make_images(counts: list[int], width: int, *, boxes: bool = True, seed: int = 0) -> list[Image]:
    rng = np.random.default_rng(seed)
    images: list[Image] = []
    for number, count in enumerate(counts):
        corner = rng.uniform(0, 0.5, (count, 2))
        xyxy = np.concatenate([corner, corner + rng.uniform(0.1, 0.5, (count, 2))], 1).astype(np.float32)
        features = rng.standard_normal((count, width)).astype(np.float32)
        images.append((f"img{number}", features, xyxy if boxes else None))
    return images


def write(path: Path, images: list[Image], dtype: str = "float32") -> PackedFeatureStore:
    write_store(path, images, extractor="ours-1", dtype=dtype)
    return PackedFeatureStore(path)


BOXES = np.array([[0, 0, 1, 1], [0.2, 0.2, 0.4, 0.6]], np.float32)
