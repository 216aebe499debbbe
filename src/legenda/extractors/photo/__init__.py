"""The extractor `photo`: visual tokens and predicted words from networks that the package holds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from legenda.extractors.base import ImageRegions
from legenda.extractors.photo.mobilenet import MobileNetV2
from legenda.extractors.photo.nanodet import SIZE, NanoDet, decode, summarize
from legenda.extractors.photo.regions import ImageVectors, RegionMaker
from legenda.models.weights import load_tensors

_SIDE = 224
_BATCH = 16


@dataclass(frozen=True, eq=False)
class Backbones:
    """The two networks, MobileNetV2 and NanoDet-Plus."""

    mobilenet: MobileNetV2
    nanodet: NanoDet

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Return the networks of a folder; raise LegendaError for a file that is missing or damaged."""
        mobilenet = MobileNetV2()
        mobilenet.load_state_dict(load_tensors(folder / "mobilenet.safetensors", "install legenda again"))
        return cls(mobilenet.eval().to(memory_format=torch.channels_last), NanoDet.load(folder))

    @torch.inference_mode()
    def __call__(self, images: list[Image.Image]) -> ImageVectors:
        """Return the vectors of RGB images of any size, which are resized to 224 x 224 pixels first."""
        batches = [self._vectors(images[first : first + _BATCH]) for first in range(0, len(images), _BATCH)]
        return ImageVectors(*(torch.cat(parts) for parts in zip(*batches, strict=True)))

    def _vectors(self, images: list[Image.Image]) -> tuple[Tensor, Tensor]:
        small = [image.resize((_SIDE, _SIDE), Image.Resampling.BICUBIC) for image in images]
        pixels = _pixels(small)
        maps = self.mobilenet(pixels / 127.5 - 1)
        mirrored = self.mobilenet(pixels.flip(3) / 127.5 - 1)
        whole = (maps.mean((2, 3)) + mirrored.mean((2, 3))) / 2
        parts = torch.cat([whole.unsqueeze(1), F.avg_pool2d(maps, 3, 2).flatten(2).transpose(1, 2)], dim=1)
        output, stages = self.nanodet(_pixels([each.resize((SIZE, SIZE), Image.Resampling.BICUBIC) for each in small]))
        detections = torch.from_numpy(np.stack([summarize(*pair) for pair in zip(*decode(output), strict=True)]))
        pooled = torch.cat([pool for stage in stages for pool in (stage.mean((2, 3)), stage.amax((2, 3)))], dim=1)
        return parts.sqrt(), torch.cat([detections, pooled.clamp(min=0).sqrt(), _colors(pixels)], dim=1)


def _pixels(images: list[Image.Image]) -> Tensor:
    return torch.from_numpy(np.stack([np.asarray(image) for image in images])).permute(0, 3, 1, 2).float()


def _colors(pixels: Tensor) -> Tensor:
    """Return the roots of a histogram of 4 x 4 x 4 colors, and the mean color of 3 x 3 cells, `(B, 64 + 27)`."""
    red, green, blue = (pixels.byte() // 64).unbind(1)
    codes = (16 * red + 4 * green + blue).flatten(1)
    histogram = torch.stack([image.bincount(minlength=64) for image in codes]) / codes.shape[1]
    return torch.cat([histogram.sqrt(), F.adaptive_avg_pool2d(pixels / 255, 3).flatten(1)], dim=1)


@dataclass(frozen=True, eq=False)
class PhotoExtractor:
    """The extract function."""

    backbones: Backbones
    maker: RegionMaker

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Return the extractor of a folder; raise LegendaError for a file that is missing or damaged."""
        return cls(Backbones.load(folder), RegionMaker.load(folder))

    def __call__(self, images: list[Image.Image]) -> list[ImageRegions]:
        """Return features `(N, WIDTH)` and boxes `(N, 4)` of each image."""
        features, boxes = self.maker.regions(self.backbones(images))
        return [(each, boxes) for each in features]
