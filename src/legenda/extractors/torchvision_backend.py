"""Regions of torchvision's Faster R-CNN: the box head's features of each detected box."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import torch
from PIL import Image
from torchvision.models import detection, get_model_weights
from torchvision.transforms.functional import pil_to_tensor

from legenda.errors import ConfigError, did_you_mean
from legenda.extractors.base import DOWNLOAD_HINT, Extract, ImageRegions
from legenda.extractors.selection import MAX_REGIONS, select_regions
from legenda.io import verified

_MODELS = tuple(
    name for name in dir(detection) if name.startswith("fasterrcnn_") and callable(getattr(detection, name))
)
_MIN_SCORE = 0.01


def load_torchvision(name: str, weights: Path | None, device: torch.device, allow_download: bool = True) -> Extract:
    """Return the extract function of a Faster R-CNN with its published weights, downloaded once, or those of a file.

    Raises ConfigError for an unknown model, and DataError for weights that are missing or of another model.
    """
    if name not in _MODELS:
        raise ConfigError(f"torchvision has no detector {name!r}; {did_you_mean(name, _MODELS)}")
    build = getattr(detection, name)
    if weights is None:
        published: Any = get_model_weights(build)
        file = Path(urlsplit(published.DEFAULT.url).path).name
        if not (allow_download or Path(torch.hub.get_dir(), "checkpoints", file).is_file()):
            raise ConfigError(f"torchvision:{name} is not on this machine; {DOWNLOAD_HINT}")
        model = verified(lambda: build(weights="DEFAULT"), f"torchvision:{name}", "name a file, torchvision:MODEL:FILE")
    else:
        hint = f"name weights of {name}"
        state = verified(lambda: torch.load(weights, map_location="cpu", weights_only=True), weights, hint)
        model = build(weights=None, weights_backbone=None)
        verified(lambda: model.load_state_dict(state) and None, weights, hint)
    return make_extract(model, device)


def make_extract(model: Any, device: torch.device) -> Extract:
    """Return the extract function of a model with the attributes of torchvision's Faster R-CNN."""
    model = model.eval().to(device)
    model.roi_heads.score_thresh, model.roi_heads.detections_per_img = _MIN_SCORE, MAX_REGIONS

    @torch.inference_mode()
    def extract(images: list[Image.Image]) -> list[ImageRegions]:
        parameter = next(model.parameters())
        inputs, _ = model.transform([pil_to_tensor(image).to(parameter) / 255 for image in images])
        maps = model.backbone(inputs.tensors)
        if isinstance(maps, torch.Tensor):
            maps = {"0": maps}
        proposals, _ = model.rpn(inputs, maps)
        detections, _ = model.roi_heads(maps, proposals, inputs.image_sizes)
        frames = [torch.tensor([[0, 0, width, height]]).to(parameter) for height, width in inputs.image_sizes]
        boxes = [
            found["boxes"] if len(found["boxes"]) else frame for found, frame in zip(detections, frames, strict=True)
        ]
        pooled = model.roi_heads.box_roi_pool(maps, boxes, inputs.image_sizes)
        features = model.roi_heads.box_head(pooled).float().split([len(corners) for corners in boxes])
        regions: list[ImageRegions] = []
        for states, corners, frame, found in zip(features, boxes, frames, detections, strict=True):
            scores = found["scores"].float() if len(found["boxes"]) else torch.ones(1, device=states.device)
            relative = (corners / frame[:, [2, 3, 2, 3]]).float().clamp(0, 1)
            regions.append(select_regions(states, relative, scores))
        return regions

    return extract
