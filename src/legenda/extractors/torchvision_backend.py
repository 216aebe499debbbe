"""Regions of torchvision's Faster R-CNN: the features are what its box head makes of each detected box."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torchvision.models import detection
from torchvision.transforms.functional import pil_to_tensor

from legenda.errors import UserError, nearest
from legenda.extractors.device import best_device
from legenda.extractors.hf_backend import MOST, Regions, choose
from legenda.io import verified

_MODELS = tuple(
    name for name in dir(detection) if name.startswith("fasterrcnn_") and callable(getattr(detection, name))
)
_LEAST_SCORE = 0.01


def load_torchvision(name: str, weights: Path | None, *, half: bool = False) -> Callable[[list[Image.Image]], Regions]:
    """What extracts with a Faster R-CNN of torchvision: its published weights, which are fetched once, or a file's.

    Raises UserError for an unknown model and for weights that cannot be had or are another's.
    """
    if name not in _MODELS:
        raise UserError(f"torchvision has no detector {name!r}; {nearest(name, _MODELS)}")
    build = getattr(detection, name)
    if weights is None:
        model = verified(lambda: build(weights="DEFAULT"), f"torchvision:{name}", "name a file, torchvision:MODEL:FILE")
    else:
        state = verified(
            lambda: torch.load(weights, map_location="cpu", weights_only=True), weights, "name its weights"
        )
        model = build(weights=None, weights_backbone=None)
        verified(lambda: model.load_state_dict(state) and None, weights, hint)
    return make_extract(model, half=half)


def make_extract(model: Any, *, half: bool = False) -> Callable[[list[Image.Image]], Regions]:
    """What extracts with a model of the form of torchvision's Faster R-CNN."""
    model = model.eval().to(best_device(), torch.float16 if half else torch.float32)
    model.roi_heads.score_thresh, model.roi_heads.detections_per_img = _LEAST_SCORE, MOST

    @torch.inference_mode()
    def extract(pictures: list[Image.Image]) -> Regions:
        own = next(model.parameters())
        given = [pil_to_tensor(picture).to(own) / 255 for picture in pictures]
        images, _ = model.transform(given)
        maps = model.backbone(images.tensors)
        if isinstance(maps, torch.Tensor):
            maps = {"0": maps}
        proposals, _ = model.rpn(images, maps)
        found, _ = model.roi_heads(maps, proposals, images.image_sizes)
        whole = [torch.tensor([[0, 0, width, height]]).to(own) for height, width in images.image_sizes]
        boxes = [one["boxes"] if len(one["boxes"]) else all_of for one, all_of in zip(found, whole, strict=True)]
        pooled = model.roi_heads.box_roi_pool(maps, boxes, images.image_sizes)
        features = model.roi_heads.box_head(pooled).float().split([len(own_boxes) for own_boxes in boxes])
        regions: Regions = []
        for states, own_boxes, all_of, one in zip(features, boxes, whole, found, strict=True):
            scores = one["scores"].float() if len(one["boxes"]) else torch.ones(1, device=states.device)
            shares = (own_boxes / all_of[:, [2, 3, 2, 3]]).float().clamp(0, 1)
            kept: tuple[np.ndarray, np.ndarray] = choose(states, shares, scores)
            regions.append(kept)
        return regions

    return extract
