"""Grids of backbones and plain pixels as extractors."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from legenda.compute import ComputeOptions
from legenda.errors import ConfigError
from legenda.features.extractors import digest_of
from legenda.images.extractor import Extractor, ExtractorIdentity, ImageRegions
from legenda.models.backbone import Backbone, load_backbone
from legenda.regions import Regions

_MAX_SIDE = 2048
"""The largest side of images as pixels."""


def to_pixels(images: list[Image.Image], side: int) -> Tensor:
    """Return RGB images as squares of pixels in 0..1, `(B, 1, 3 * side * side)`."""
    resized = [np.asarray(image.resize((side, side), Image.Resampling.BICUBIC), np.float32) for image in images]
    return (torch.from_numpy(np.stack(resized)) / 255).permute(0, 3, 1, 2).flatten(1).unsqueeze(1)


def load_pixels(model: str, *, compute: ComputeOptions) -> Extractor:  # noqa: ARG001
    """Return the pixels of images of a side, each one region, which captioners with a backbone read."""
    if not model.isdecimal() or not 0 < int(model) <= _MAX_SIDE:
        raise ConfigError(
            f"pixels needs the side of the images, as in pixels:224 and at most {_MAX_SIDE}, not {model!r}"
        )
    box = np.array([[0, 0, 1, 1]], np.float32)

    def extract(images: list[Image.Image]) -> list[ImageRegions]:
        return [(pixels.numpy(), box) for pixels in to_pixels(images, int(model))]

    return Extractor(f"pixels:{model}", extract)


def load_timm(model: str, *, compute: ComputeOptions, allow_download: bool = True) -> Extractor:
    """Return the grid of a backbone of timm, MODEL or MODEL:FILE."""
    backbone = load_backbone(f"timm:{model}", allow_download=allow_download).to(compute.resolve())
    model, _, weights = model.partition(":")
    identity = ExtractorIdentity(name="timm", model=model, digest=digest_of([Path(weights)] if weights else []))
    return Extractor(identity, partial(extract_map, backbone))


@torch.inference_mode()
def extract_map(backbone: Backbone, images: list[Image.Image]) -> list[ImageRegions]:
    """Return the cells of each image, row by row, and their boxes."""
    regions = backbone(Regions(to_pixels(images, backbone.config.image_size).to(backbone.mean)))
    assert regions.boxes is not None
    return [(x.cpu().numpy(), boxes.cpu().numpy()) for x, boxes in zip(regions.features, regions.boxes, strict=True)]
