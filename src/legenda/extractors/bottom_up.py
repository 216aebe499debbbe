"""Bottom-Up attention's detector: Faster R-CNN on ResNet-101, trained on Visual Genome with 1,600 classes and 400
attributes (Anderson et al., CVPR 2018). All four papers use its region features.

The network, its parameter names and the selection of regions follow MILVLG/bottom-up-attention.pytorch, whose
`bua-caffe-frcn-r101_with_attributes.pth` holds the original Caffe weights. Box corners are inclusive pixel indices, as
in Caffe: a box from 3 to 3 is one pixel wide.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F
from torchvision.ops import box_iou, nms, roi_pool

from legenda.compute import ComputeOptions
from legenda.errors import ConfigError
from legenda.extractors.detection import (
    MAX_REGIONS,
    MIN_CONFIDENCE,
    MIN_REGIONS,
    decode_deltas,
    load_state,
    map_groups,
    resize_scale,
    resized_size,
)
from legenda.features.extractors import digest_of
from legenda.images.extractor import Extractor, ExtractorIdentity, ImageRegions
from legenda.models.weights import read_tensors

_MEAN = (102.9801, 115.9465, 122.7717)
"""Mean pixel in BGR order, subtracted before the image is resized."""
_STRIDE = 16
_MAX_PROPOSALS, _PRE_NMS_PROPOSALS, _MIN_BOX_SIDE = 300, 6_000, 16
_PROPOSAL_IOU, _CLASS_IOU = 0.7, 0.3
_MAX_LOG_SCALE = math.log(1000 / 16)
_HINT = "name bua-caffe-frcn-r101_with_attributes.pth of MILVLG/bottom-up-attention.pytorch"


class _Conv(nn.Conv2d):
    """A convolution with its batch normalization as a submodule, as in Detectron2."""

    def __init__(self, inner: int, outer: int, size: int, stride: int = 1, dilation: int = 1) -> None:
        super().__init__(inner, outer, size, stride, dilation * (size // 2), dilation, bias=False)
        self.norm = nn.BatchNorm2d(outer)

    def forward(self, input: Tensor) -> Tensor:
        return self.norm(super().forward(input))


class _Bottleneck(nn.Module):
    def __init__(self, inner: int, middle: int, outer: int, stride: int, dilation: int) -> None:
        super().__init__()
        self.shortcut = None if inner == outer else _Conv(inner, outer, 1, stride)
        self.conv1 = _Conv(inner, middle, 1, stride)  # stride in the first convolution, as in Caffe
        self.conv2 = _Conv(middle, middle, 3, dilation=dilation)
        self.conv3 = _Conv(middle, outer, 1)

    def forward(self, x: Tensor) -> Tensor:
        out = self.conv3(F.relu(self.conv2(F.relu(self.conv1(x)))))
        return F.relu(out + (x if self.shortcut is None else self.shortcut(x)))


def _stage(blocks: int, inner: int, middle: int, stride: int, dilation: int = 1) -> nn.Sequential:
    first = _Bottleneck(inner, middle, 4 * middle, stride, dilation)
    return nn.Sequential(first, *(_Bottleneck(4 * middle, middle, 4 * middle, 1, dilation) for _ in range(blocks - 1)))


def _backbone(width: int, blocks: tuple[int, ...]) -> nn.Sequential:
    stem = OrderedDict[str, nn.Module](
        conv1=_Conv(3, width, 7, 2), relu=nn.ReLU(), pool=nn.MaxPool2d(3, 2, ceil_mode=True)
    )
    stages = OrderedDict[str, nn.Module](
        stem=nn.Sequential(stem),
        res2=_stage(blocks[0], width, width, 1),
        res3=_stage(blocks[1], 4 * width, 2 * width, 2),
        res4=_stage(blocks[2], 8 * width, 4 * width, 2),
    )
    return nn.Sequential(stages)


class _RPNHead(nn.Module):
    """The head of the region proposal network: two logits and four deltas for each of 12 anchors per cell."""

    def __init__(self, inner: int, middle: int) -> None:
        super().__init__()
        anchors = len(base_anchors())
        self.conv = nn.Conv2d(inner, middle, 3, padding=1)
        self.objectness_logits = nn.Conv2d(middle, 2 * anchors, 1)
        self.anchor_deltas = nn.Conv2d(middle, 4 * anchors, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return objectness (B, H * W * 12), in 0..1, and deltas (B, H * W * 12, 4) of feature maps (B, C, H, W)."""
        hidden = F.relu(self.conv(x))
        pairs = self.objectness_logits(hidden).unflatten(1, (2, -1)).softmax(dim=1)[:, 1]  # (B, 12, H, W)
        deltas = self.anchor_deltas(hidden).unflatten(1, (-1, 4))  # (B, 12, 4, H, W)
        return pairs.permute(0, 2, 3, 1).flatten(1), deltas.permute(0, 3, 4, 1, 2).flatten(1, 3)


class BottomUp(nn.Module):
    """The detector without the heads for attributes and refined boxes; the defaults are the public weights' sizes."""

    def __init__(
        self,
        *,
        width: int = 64,
        blocks: tuple[int, int, int, int] = (3, 4, 23, 3),
        rpn_width: int = 512,
        classes: int = 1601,
    ) -> None:
        super().__init__()
        self.backbone = _backbone(width, blocks)
        self.proposal_generator = nn.ModuleDict({"rpn_head": _RPNHead(16 * width, rpn_width)})
        res5 = _stage(blocks[3], 16 * width, 8 * width, 1, dilation=2)
        predictor = nn.Sequential(OrderedDict[str, nn.Module](cls_score=nn.Linear(32 * width, classes)))
        self.roi_heads = nn.ModuleDict({"res5": res5, "box_predictor": predictor})

    def forward(
        self, images: Tensor, scales: Sequence[float], num_regions: int | None = None
    ) -> list[tuple[Tensor, Tensor]]:
        """Return features (n, 2048) and boxes (n, 4) in pixels of each resized image (B, 3, H, W), BGR minus _MEAN.

        scales: the ratio of its size to that of the original image. num_regions: see `select_boxes`.
        """
        maps = self.backbone(images)
        regions = []
        objectness, all_deltas = self.proposal_generator["rpn_head"](maps)
        for map_, probs, deltas, scale in zip(maps.split(1), objectness, all_deltas, scales, strict=True):
            boxes = self._propose(probs, deltas, map_.shape[-2:], images.shape[-2:], scale)
            pooled = roi_pool(map_, [boxes.to(map_.dtype)], 14, 1 / _STRIDE)
            features = self.roi_heads["res5"](pooled).mean(dim=(2, 3))
            classes = self.roi_heads["box_predictor"](features).float().softmax(dim=-1)[:, 1:]
            selected = select_boxes(boxes, classes, num_regions)
            regions.append((features[selected], boxes[selected]))
        return regions

    def _propose(self, probs: Tensor, deltas: Tensor, cells: torch.Size, size: torch.Size, scale: float) -> Tensor:
        """Return at most 300 boxes (n, 4) after non-maximum suppression of those at the anchors of the cells."""
        shifts, log_scales = deltas.float().split(2, dim=1)
        limited = torch.cat([shifts, log_scales.clamp(max=_MAX_LOG_SCALE)], dim=1)
        boxes = decode_deltas(grid_anchors(*cells).to(deltas.device), limited)
        height, width = size
        limit = boxes.new_tensor([width - 1, height - 1, width - 1, height - 1])
        boxes = boxes.clamp(min=0).minimum(limit)
        sides = boxes[:, 2:] - boxes[:, :2]
        large = ((sides > 0) & (sides + 1 > _MIN_BOX_SIDE * scale)).all(dim=1)
        if not large.any():  # the image is smaller than the smallest box
            return torch.cat([torch.zeros_like(limit[:2]), limit[2:].clamp(min=1)]).unsqueeze(0)
        boxes, probs = boxes[large], probs.float()[large]
        order = probs.argsort(descending=True)[:_PRE_NMS_PROPOSALS]
        kept = nms(boxes[order] + boxes.new_tensor([0, 0, 1, 1]), probs[order], _PROPOSAL_IOU)
        return boxes[order][kept[:_MAX_PROPOSALS]]


def base_anchors() -> Tensor:
    """Return the anchors (12, 4) of the first cell: ratios 1:2, 1:1 and 2:1, each of 64, 128, 256 and 512 pixels.

    Rounded as in Caffe: a square of 16 pixels is reshaped first and scaled afterwards.
    """
    anchors = []
    middle = (_STRIDE - 1) / 2
    for ratio in (0.5, 1.0, 2.0):
        width = round(math.sqrt(_STRIDE * _STRIDE / ratio))
        height = round(width * ratio)
        for size in (4, 8, 16, 32):
            half_width, half_height = (width * size - 1) / 2, (height * size - 1) / 2
            anchors.append([middle - half_width, middle - half_height, middle + half_width, middle + half_height])
    return torch.tensor(anchors)


def grid_anchors(height: int, width: int) -> Tensor:
    """Return the anchors of every cell of a feature map (height * width * 12, 4) in row-major order."""
    y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    corners = torch.stack([x, y, x, y], dim=-1).reshape(-1, 1, 4) * _STRIDE
    return (corners + base_anchors()).reshape(-1, 4)


def select_boxes(boxes: Tensor, probs: Tensor, num_regions: int | None = None) -> Tensor:
    """Return the indices of the selected boxes (n, 4) by class probabilities (n, C) after suppression per class.

    num_regions: how many, where there are so many; None for those of the released rule, 10 to 100.
    """
    confidence = probs.masked_fill(suppressed(boxes, probs), 0.0).amax(dim=1)
    confident = (confidence >= MIN_CONFIDENCE).nonzero().flatten()
    count = min(max(len(confident), num_regions or MIN_REGIONS), num_regions or MAX_REGIONS)
    return confident if count == len(confident) else confidence.argsort(descending=True)[:count]


def suppressed(boxes: Tensor, probs: Tensor) -> Tensor:
    """Return the mask (n, C) of boxes that non-maximum suppression removes, for all classes at once."""
    edges = boxes + boxes.new_tensor([0, 0, 1, 1])
    close = box_iou(edges, edges) > _CLASS_IOU  # (n, n)
    order = probs.argsort(dim=0, descending=True)  # (n, C)
    removed = torch.zeros(probs.shape[1], len(boxes), dtype=torch.bool, device=boxes.device)
    classes = torch.arange(probs.shape[1], device=boxes.device)
    for box in order:  # (C,): the next box of each class
        kept = ~removed[classes, box]
        itself = F.one_hot(box, len(boxes)).bool()
        removed |= close[box] & kept.unsqueeze(1) & ~itself
    return removed.T


def load_bottom_up(weights: str, *, compute: ComputeOptions) -> Extractor:
    """Return the extractor of the detector with the public weights of a file.

    Raises CheckpointError or DataError, naming the file, when it is missing or holds other weights.
    """
    if not weights:
        raise ConfigError("bottom-up needs its weights; name the file, as in bottom-up:weights.pth")
    path = Path(weights)
    with torch.device("meta"):
        model = BottomUp()
    load_state(model, read_tensors(path, _HINT), path, _HINT)
    extract = partial(extract_regions, model.eval().to(compute.resolve()))
    identity = ExtractorIdentity(name="bottom-up", digest=digest_of([path]))
    return Extractor(identity, extract, with_num_regions=lambda count: partial(extract, num_regions=count))


@torch.inference_mode()
def extract_regions(model: BottomUp, images: list[Image.Image], num_regions: int | None = None) -> list[ImageRegions]:
    """Return features (n, 2048) and boxes (n, 4) in 0..1 of each RGB image, 10 <= n <= 100 or n = num_regions.

    Images that are resized to one size are a batch. There are fewer regions where fewer boxes are proposed.
    """

    def extract_batch(batch: list[Image.Image]) -> list[ImageRegions]:
        parameter = next(model.parameters())
        resized = torch.cat([_resize(image) for image in batch]).to(parameter)
        height, width = resized.shape[-2:]
        regions = model(resized, [resize_scale(image.size) for image in batch], num_regions)
        frame = regions[0][1].new_tensor([width, height, width, height])
        return [
            (features.float().cpu().numpy(), (boxes / frame).clamp(0, 1).cpu().numpy()) for features, boxes in regions
        ]

    return map_groups(extract_batch, images, resized_size)


def _resize(image: Image.Image) -> Tensor:
    """Return the pixels of an image (1, 3, H, W), BGR minus _MEAN."""
    pixels = torch.from_numpy(np.asarray(image, np.float32)[:, :, ::-1] - np.array(_MEAN, np.float32))
    return F.interpolate(pixels.permute(2, 0, 1).unsqueeze(0), resized_size(image)[::-1], mode="bilinear")
