"""Regions of torchvision's Faster R-CNN, the box head's features of each detected box, and grids of its ResNets."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torchvision.models import detection
from torchvision.transforms.functional import pil_to_tensor

from legenda.errors import ConfigError, did_you_mean
from legenda.extractors.base import Extract, Extractor, ImageRegions
from legenda.extractors.detection import map_groups
from legenda.extractors.selection import MAX_REGIONS, select_regions
from legenda.extractors.torchvision_grids import GRIDS, load_grid
from legenda.extractors.weights import load_published
from legenda.io import verified
from legenda.torch_pickle import load_checkpoint

_MODELS = tuple(
    name for name in dir(detection) if name.startswith("fasterrcnn_") and callable(getattr(detection, name))
)
_MIN_SCORE = 0.01


def load_torchvision(name: str, weights: Path | None, device: torch.device, allow_download: bool = True) -> Extractor:
    """Return a Faster R-CNN, or the grid of a ResNet, with its published weights, downloaded once, or those of a file.

    Raises ConfigError for an unknown model, and DataError for weights that are missing or of another model.
    """
    if name in GRIDS:
        return Extractor(name, load_grid(name, weights, device, allow_download))
    if name not in _MODELS:
        raise ConfigError(f"torchvision has no model {name!r} that is read; {did_you_mean(name, (*_MODELS, *GRIDS))}")
    build = getattr(detection, name)
    if weights is None:
        model = load_published(build, name, allow_download)
    else:
        hint = f"name weights of {name}"
        state = load_checkpoint(weights, hint)
        model = build(weights=None, weights_backbone=None)
        verified(lambda: model.load_state_dict(state) and None, weights, hint)
    model = model.eval().to(device)
    return Extractor(name, partial(extract_regions, model), with_num_regions=partial(_with_num_regions, model))


def _with_num_regions(model: Any, num_regions: int) -> Extract:
    return partial(extract_regions, model, num_regions=num_regions)


def extract_regions(model: Any, images: list[Image.Image], num_regions: int | None = None) -> list[ImageRegions]:
    """Return the regions of a model with the attributes of torchvision's Faster R-CNN in evaluation mode.

    Images of one size are a batch. num_regions: how many, where there are so many boxes; None for 10 to 100.
    """
    model.roi_heads.score_thresh = _MIN_SCORE if num_regions is None else 0
    model.roi_heads.detections_per_img = num_regions or MAX_REGIONS
    return map_groups(partial(_extract, model, num_regions), images, lambda image: image.size)


@torch.inference_mode()
def _extract(model: Any, num_regions: int | None, images: list[Image.Image]) -> list[ImageRegions]:
    parameter = next(model.parameters())
    inputs, _ = model.transform([pil_to_tensor(image).to(parameter) / 255 for image in images])
    maps = model.backbone(inputs.tensors)
    if isinstance(maps, torch.Tensor):
        maps = {"0": maps}
    proposals, _ = model.rpn(inputs, maps)
    detections, _ = model.roi_heads(maps, proposals, inputs.image_sizes)
    frames = [torch.tensor([[0, 0, width, height]]).to(parameter) for height, width in inputs.image_sizes]
    boxes = [found["boxes"] if len(found["boxes"]) else frame for found, frame in zip(detections, frames, strict=True)]
    pooled = model.roi_heads.box_roi_pool(maps, boxes, inputs.image_sizes)
    features = model.roi_heads.box_head(pooled).float().split([len(corners) for corners in boxes])
    regions: list[ImageRegions] = []
    for states, corners, frame, found in zip(features, boxes, frames, detections, strict=True):
        scores = found["scores"].float() if len(found["boxes"]) else torch.ones(1, device=states.device)
        relative = (corners / frame[:, [2, 3, 2, 3]]).float().clamp(0, 1)
        regions.append(select_regions(states, relative, scores, num_regions))
    return regions
