"""Regions of torchvision's Faster R-CNN, the box head's features of each detected box, and grids of its ResNets.

Grids are those of Jiang et al. (CVPR 2020): the last feature map of an image whose short side is 600 pixels, averaged
to 7 x 7 cells as in the files that MD-SAN reads.
"""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F
from torchvision.models import detection, resnet
from torchvision.transforms.functional import pil_to_tensor

from legenda.compute import ComputeOptions
from legenda.errors import CheckpointError, ConfigError, did_you_mean
from legenda.extractors.detection import (
    MAX_REGIONS,
    load_state,
    map_groups,
    resized_size,
    select_regions,
)
from legenda.features.extractors import digest_of
from legenda.images.extractor import Extract, Extractor, ExtractorIdentity, ImageRegions, grid_boxes
from legenda.io import verified
from legenda.models.backbone import IMAGENET_MEAN, IMAGENET_STD, load_published
from legenda.models.weights import read_tensors

_MODELS = tuple(
    name for name in dir(detection) if name.startswith("fasterrcnn_") and callable(getattr(detection, name))
)
_MIN_SCORE = 0.01
_RESNEXT152 = "resnext152_32x8d"
_GRIDS = (*(name for name in dir(resnet) if re.match(r"(wide_)?res\w+\d", name)), _RESNEXT152)
"""The backbones; that of X-152 has no weights in torchvision."""
SIDE = 7
_DETECTRON = re.compile(r"(?:backbone|roi_heads)\.(?:res(\d)\.(\d+)|stem)\.(?:conv(\d)|shortcut)(\.norm)?\.(\w+)")


def load_torchvision(model: str, *, compute: ComputeOptions, allow_download: bool = True) -> Extractor:
    """Return a Faster R-CNN, or the grid of a ResNet: MODEL with its published weights, or MODEL:FILE.

    Raises ConfigError for an unknown model, and DataError for weights that are missing or of another model.
    """
    name, _, file = model.partition(":")
    weights, device = Path(file) if file else None, compute.resolve()
    identity = ExtractorIdentity(name="torchvision", model=name, digest=digest_of([weights] if weights else []))
    if name in _GRIDS:
        return Extractor(identity, load_grid(name, weights, device, allow_download))
    if name not in _MODELS:
        raise ConfigError(f"torchvision has no model {name!r} that is read; {did_you_mean(name, (*_MODELS, *_GRIDS))}")
    build = getattr(detection, name)
    if weights is None:
        net = load_published(build, name, allow_download)
    else:
        hint = f"name weights of {name}"
        state = read_tensors(weights, hint)
        net = build(weights=None, weights_backbone=None)
        verified(lambda: net.load_state_dict(state) and None, weights, hint)
    extract = partial(extract_regions, net.eval().to(device))
    return Extractor(identity, extract, with_num_regions=lambda count: partial(extract, num_regions=count))


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
    boxes = [
        result["boxes"] if len(result["boxes"]) else frame for result, frame in zip(detections, frames, strict=True)
    ]
    pooled = model.roi_heads.box_roi_pool(maps, boxes, inputs.image_sizes)
    features = model.roi_heads.box_head(pooled).float().split([len(corners) for corners in boxes])
    regions: list[ImageRegions] = []
    for states, corners, frame, result in zip(features, boxes, frames, detections, strict=True):
        scores = result["scores"].float() if len(result["boxes"]) else torch.ones(1, device=states.device)
        relative = (corners / frame[:, [2, 3, 2, 3]]).float().clamp(0, 1)
        regions.append(select_regions(states, relative, scores, num_regions))
    return regions


def load_grid(name: str, weights: Path | None, device: torch.device, allow_download: bool = True) -> Extract:
    """Return the extract function of a backbone with its published weights, downloaded once, or those of a file.

    The file has torchvision's names, or those of Detectron2, as the detectors of Jiang et al. have, trained on Visual
    Genome. Raise ConfigError, DataError or CheckpointError where there are no weights, or those of another model.
    """
    if weights is None and name == _RESNEXT152:
        raise ConfigError(f"torchvision has no weights of {name}; name a file, torchvision:{name}:FILE")
    if weights is None:
        model: resnet.ResNet = load_published(getattr(resnet, name), name, allow_download)
    else:
        with torch.device("meta"):
            if name == _RESNEXT152:
                model = resnet.ResNet(resnet.Bottleneck, [3, 8, 36, 3], groups=32, width_per_group=8)
            else:
                model: resnet.ResNet = getattr(resnet, name)()
        model.register_module("fc", nn.Identity())  # the classifier, which a grid does not need
        hint = f"name weights of {name}"
        state = read_tensors(weights, hint)
        load_state(model, rename_detectron(state, weights) if name.startswith("resnext") else state, weights, hint)
    return partial(extract_grids, model.eval().to(device))


def rename_detectron(state: dict[str, Tensor], path: Path) -> dict[str, Tensor]:
    """Return the weights of Detectron2's ResNeXt under torchvision's names; others unchanged.

    Its models read BGR, so the channels of the first convolution are reversed. Raise CheckpointError, naming the file,
    for deformable convolutions, which torchvision's ResNets lack.
    """
    if any("conv2_offset" in name for name in state):
        raise CheckpointError(f"{path} holds deformable convolutions, which are not read; name weights without them")
    if "backbone.stem.conv1.weight" not in state:
        return state
    renamed: dict[str, Tensor] = {}
    for source_key, value in state.items():
        match = _DETECTRON.fullmatch(source_key)
        if match is None:
            continue
        stage, block, conv, norm, part = match.groups()
        layer = f"layer{int(stage) - 1}.{block}." if stage else ""
        module = f"{'bn' if norm else 'conv'}{conv}" if conv else f"downsample.{1 if norm else 0}"
        renamed[f"{layer}{module}.{part}"] = value
    return {**renamed, "conv1.weight": renamed["conv1.weight"].flip(1)}


def extract_grids(model: resnet.ResNet, images: list[Image.Image]) -> list[ImageRegions]:
    """Return features (49, D) of the cells of each RGB image, row by row, and their boxes; one size is a batch."""
    return map_groups(partial(_extract_grid, model), images, resized_size)


@torch.inference_mode()
def _extract_grid(model: resnet.ResNet, images: list[Image.Image]) -> list[ImageRegions]:
    parameter = next(model.parameters())
    width, height = resized_size(images[0])
    resized = [np.asarray(image.resize((width, height), Image.Resampling.BILINEAR)) for image in images]
    pixels = torch.from_numpy(np.stack(resized)).permute(0, 3, 1, 2).to(parameter) / 255
    mean, std = (pixels.new_tensor(values).reshape(3, 1, 1) for values in (IMAGENET_MEAN, IMAGENET_STD))
    maps = model.maxpool(model.relu(model.bn1(model.conv1((pixels - mean) / std))))
    maps = model.layer4(model.layer3(model.layer2(model.layer1(maps))))
    cells = F.adaptive_avg_pool2d(maps.float(), SIDE).flatten(2).transpose(1, 2).cpu().numpy()
    boxes = grid_boxes(SIDE, SIDE)
    return [(features, boxes) for features in cells]
