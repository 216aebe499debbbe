"""Bottom-Up attention's detector: Faster R-CNN on ResNet-101, trained on Visual Genome with 1,600 classes and 400
attributes (Anderson et al., CVPR 2018), whose region features all four papers read.

The network and its names are those of MILVLG/bottom-up-attention.pytorch, whose
`bua-caffe-frcn-r101_with_attributes.pth` holds the Caffe weights of the original; so are the rules of choosing regions.
Boxes are Caffe's: corners are pixels, a box from 3 to 3 is one pixel wide.
"""

from __future__ import annotations

import hashlib
import math
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F
from torchvision.ops import box_iou, nms, roi_pool

from legenda.errors import UserError
from legenda.extractors.device import best_device
from legenda.io import verified

MEAN = (102.9801, 115.9465, 122.7717)
"""Of blue, green and red, taken off before scaling."""
SHORT_SIDE, LONG_SIDE = 600, 1000
STRIDE = 16
LEAST, MOST, CONFIDENT = 10, 100, 0.2
"""Regions of a picture: those of at least this confidence, but no fewer and no more."""
_PROPOSALS, _RANKED, _SMALLEST = 300, 6_000, 16
_PROPOSAL_OVERLAP, _CLASS_OVERLAP = 0.7, 0.3
_SCALE_LIMIT = math.log(1000 / 16)
_HINT = "name bua-caffe-frcn-r101_with_attributes.pth of MILVLG/bottom-up-attention.pytorch"


class _Conv(nn.Conv2d):
    """A convolution and its normalisation, under one name as in Detectron2."""

    def __init__(self, inner: int, outer: int, size: int, stride: int = 1, dilation: int = 1) -> None:
        super().__init__(inner, outer, size, stride, dilation * (size // 2), dilation, bias=False)
        self.norm = nn.BatchNorm2d(outer)

    def forward(self, input: Tensor) -> Tensor:
        return self.norm(super().forward(input))


class _Bottleneck(nn.Module):
    def __init__(self, inner: int, middle: int, outer: int, stride: int, dilation: int) -> None:
        super().__init__()
        self.shortcut = None if inner == outer else _Conv(inner, outer, 1, stride)
        self.conv1 = _Conv(inner, middle, 1, stride)  # the stride is in the first convolution, as in Caffe's
        self.conv2 = _Conv(middle, middle, 3, dilation=dilation)
        self.conv3 = _Conv(middle, outer, 1)

    def forward(self, x: Tensor) -> Tensor:
        out = self.conv3(F.relu(self.conv2(F.relu(self.conv1(x)))))
        return F.relu(out + (x if self.shortcut is None else self.shortcut(x)))


def _stage(blocks: int, inner: int, middle: int, stride: int, dilation: int = 1) -> nn.Sequential:
    first = _Bottleneck(inner, middle, 4 * middle, stride, dilation)
    return nn.Sequential(first, *(_Bottleneck(4 * middle, middle, 4 * middle, 1, dilation) for _ in range(blocks - 1)))


class _Stem(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1 = _Conv(3, width, 7, 2)

    def forward(self, x: Tensor) -> Tensor:
        return F.max_pool2d(F.relu(self.conv1(x)), 3, 2, ceil_mode=True)


class _Backbone(nn.Module):
    def __init__(self, width: int, blocks: tuple[int, int, int]) -> None:
        super().__init__()
        self.stem = _Stem(width)
        self.res2 = _stage(blocks[0], width, width, 1)
        self.res3 = _stage(blocks[1], 4 * width, 2 * width, 2)
        self.res4 = _stage(blocks[2], 8 * width, 4 * width, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.res4(self.res3(self.res2(self.stem(x))))


class _Proposer(nn.Module):
    """The region proposal network's head: 12 anchors a place, a pair of scores and four shifts each."""

    def __init__(self, inner: int, middle: int) -> None:
        super().__init__()
        anchors = len(cell_anchors())
        self.conv = nn.Conv2d(inner, middle, 3, padding=1)
        self.objectness_logits = nn.Conv2d(middle, 2 * anchors, 1)
        self.anchor_deltas = nn.Conv2d(middle, 4 * anchors, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Probabilities (H * W * 12) of being a thing, and shifts (H * W * 12, 4), of one map (1, C, H, W)."""
        hidden = F.relu(self.conv(x))
        pairs = self.objectness_logits(hidden)[0].unflatten(0, (2, -1)).softmax(dim=0)[1]  # (12, H, W)
        shifts = self.anchor_deltas(hidden)[0].unflatten(0, (-1, 4))  # (12, 4, H, W)
        return pairs.permute(1, 2, 0).flatten(), shifts.permute(2, 3, 0, 1).reshape(-1, 4)


class _Predictor(nn.Module):
    def __init__(self, inner: int, classes: int, attributes: int, embedding: int, middle: int) -> None:
        super().__init__()
        self.cls_score = nn.Linear(inner, classes)
        self.bbox_pred = nn.Linear(inner, 4 * classes)
        self.cls_embed = nn.Embedding(classes, embedding)
        self.attr_linear1 = nn.Linear(inner + embedding, middle)
        self.attr_linear2 = nn.Linear(middle, attributes)


class _Generator(nn.Module):
    def __init__(self, inner: int, middle: int) -> None:
        super().__init__()
        self.rpn_head = _Proposer(inner, middle)


class _Heads(nn.Module):
    def __init__(self, res5: nn.Sequential, box_predictor: _Predictor) -> None:
        super().__init__()
        self.res5, self.box_predictor = res5, box_predictor


class BottomUp(nn.Module):
    """The detector. The defaults are those of the public weights; `width` 64 is that of every ResNet.

    `forward` gives regions of one picture; `attributes` names what a region is like.
    """

    def __init__(
        self,
        *,
        width: int = 64,
        blocks: tuple[int, int, int, int] = (3, 4, 23, 3),
        proposer: int = 512,
        classes: int = 1601,
        attributes: int = 401,
        embedding: int = 256,
        attribute_width: int = 512,
    ) -> None:
        super().__init__()
        self.backbone = _Backbone(width, blocks[:3])
        self.proposal_generator = _Generator(16 * width, proposer)
        res5 = _stage(blocks[3], 16 * width, 8 * width, 1, dilation=2)
        self.roi_heads = _Heads(res5, _Predictor(32 * width, classes, attributes, embedding, attribute_width))

    def forward(self, picture: Tensor, scale: float) -> tuple[Tensor, Tensor]:
        """Features (n, 2048) and boxes (n, 4) in pixels of the scaled picture (3, H, W), BGR less the mean.

        scale: how much larger it is than the picture that was given.
        """
        maps = self.backbone(picture.unsqueeze(0))
        boxes = self._propose(maps, picture.shape[-2:], scale)
        pooled = roi_pool(maps, [boxes.to(maps.dtype)], 14, 1 / STRIDE)
        features = self.roi_heads.res5(pooled).mean(dim=(2, 3))
        chances = self.roi_heads.box_predictor.cls_score(features).float().softmax(dim=-1)[:, 1:]
        chosen = choose_regions(boxes, chances)
        return features[chosen], boxes[chosen]

    def attributes(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Chances of the classes (n, 1601), the first of them no thing, and of the attributes (n, 401), none first."""
        predictor = self.roi_heads.box_predictor
        classes = predictor.cls_score(features)
        joined = torch.cat([features, predictor.cls_embed(classes.argmax(dim=-1))], dim=-1)
        hidden = F.relu(predictor.attr_linear1(joined))
        return classes.softmax(dim=-1), predictor.attr_linear2(hidden).softmax(dim=-1)

    def _propose(self, maps: Tensor, size: torch.Size, scale: float) -> Tensor:
        """At most 300 boxes (n, 4), the likeliest things that overlap little."""
        chances, shifts = self.proposal_generator.rpn_head(maps)
        boxes = shift_boxes(place_anchors(*maps.shape[-2:]).to(maps.device), shifts.float())
        height, width = size
        limit = boxes.new_tensor([width - 1, height - 1, width - 1, height - 1])
        boxes = boxes.clamp(min=0).minimum(limit)
        sides = boxes[:, 2:] - boxes[:, :2]
        large = ((sides > 0) & (sides + 1 > _SMALLEST * scale)).all(dim=1)
        if not large.any():  # a picture smaller than the smallest box: the whole of it
            return torch.cat([torch.zeros_like(limit[:2]), limit[2:].clamp(min=1)]).unsqueeze(0)
        boxes, chances = boxes[large], chances.float()[large]
        order = chances.argsort(descending=True)[:_RANKED]
        kept = nms(boxes[order] + boxes.new_tensor([0, 0, 1, 1]), chances[order], _PROPOSAL_OVERLAP)
        return boxes[order][kept[:_PROPOSALS]]


def cell_anchors() -> Tensor:
    """Boxes (12, 4) around the first place: shapes 1:2, 1:1 and 2:1, each of 64, 128, 256 and 512 pixels.

    Caffe's, with its rounding: a square of 16 pixels is reshaped first and scaled then.
    """
    anchors = []
    middle = (STRIDE - 1) / 2
    for ratio in (0.5, 1.0, 2.0):
        width = round(math.sqrt(STRIDE * STRIDE / ratio))
        height = round(width * ratio)
        for size in (4, 8, 16, 32):
            half_width, half_height = (width * size - 1) / 2, (height * size - 1) / 2
            anchors.append([middle - half_width, middle - half_height, middle + half_width, middle + half_height])
    return torch.tensor(anchors)


def place_anchors(rows: int, columns: int) -> Tensor:
    """The anchors of every place of a map (rows * columns * 12, 4), line by line."""
    down, right = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
    corners = torch.stack([right, down, right, down], dim=-1).reshape(-1, 1, 4) * STRIDE
    return (corners + cell_anchors()).reshape(-1, 4)


def shift_boxes(boxes: Tensor, shifts: Tensor) -> Tensor:
    """Boxes (n, 4) moved by shares of their size and stretched by powers of e (n, 4), as R-CNN predicts them."""
    sizes = boxes[:, 2:] - boxes[:, :2] + 1
    centres = boxes[:, :2] + sizes / 2 + shifts[:, :2] * sizes
    halves = sizes * shifts[:, 2:].clamp(max=_SCALE_LIMIT).exp() / 2
    return torch.cat([centres - halves, centres + halves], dim=1)


def choose_regions(boxes: Tensor, chances: Tensor) -> Tensor:
    """Which boxes (n, 4) are regions, by the greatest chance (n, C) of a class in which none better overlaps them."""
    confidence = chances.masked_fill(overlapped(boxes, chances), 0.0).amax(dim=1)
    sure = (confidence >= CONFIDENT).nonzero().flatten()
    if LEAST <= len(sure) <= MOST:
        return sure
    return confidence.argsort(descending=True)[: LEAST if len(sure) < LEAST else MOST]


def overlapped(boxes: Tensor, chances: Tensor) -> Tensor:
    """Where a likelier box of the same class that stays overlaps one by more than 0.3: (n, C), all classes at once."""
    edges = boxes + boxes.new_tensor([0, 0, 1, 1])
    close = box_iou(edges, edges) > _CLASS_OVERLAP  # (n, n)
    order = chances.argsort(dim=0, descending=True)  # (n, C)
    out = torch.zeros(chances.shape[1], len(boxes), dtype=torch.bool, device=boxes.device)
    classes = torch.arange(chances.shape[1], device=boxes.device)
    for place in range(len(boxes)):
        box = order[place]
        stays = ~out[classes, box]
        own = F.one_hot(box, len(boxes)).bool()
        out |= close[box] & stays.unsqueeze(1) & ~own
    return out.T


def load_bottom_up(weights: Path, *, half: bool = False) -> tuple[BottomUp, str]:
    """The detector with the public weights, and the first digits of their SHA-256.

    Raises UserError, naming the file, when it is missing or holds other weights; nothing in it is executed.
    """
    digest = hashlib.sha256(verified(weights.read_bytes, weights, _HINT)).hexdigest()[:8]
    if weights.suffix == ".safetensors":
        from safetensors.torch import load_file

        state = verified(lambda: load_file(weights), weights, _HINT)
    else:
        state = verified(lambda: torch.load(weights, map_location="cpu", weights_only=True), weights, _HINT)
    state = state.get("model", state) if isinstance(state, dict) else {}
    with torch.device("meta"):
        model = BottomUp()
    fill(model, state, weights)
    return model.eval().to(best_device(), torch.float16 if half else torch.float32), digest


def fill(model: nn.Module, state: dict[str, Tensor], path: Path) -> None:
    """Puts weights under their names into a model; UserError names one that is missing or of another shape."""
    wanted = {name: value for name, value in model.state_dict().items() if not name.endswith("num_batches_tracked")}
    for name, value in wanted.items():
        given = state.get(name)
        if not isinstance(given, Tensor) or given.shape != value.shape:
            shape = tuple(given.shape) if isinstance(given, Tensor) else "nothing"
            raise UserError(f"{path} has {shape} as {name}, where {tuple(value.shape)} is needed; {_HINT}")
    counters = {n: torch.zeros((), dtype=torch.long) for n in model.state_dict() if n.endswith("num_batches_tracked")}
    model.load_state_dict({**counters, **{name: state[name].float() for name in wanted}}, assign=True)


@torch.inference_mode()
def extract_regions(model: BottomUp, pictures: list[Image.Image]) -> list[tuple[np.ndarray, np.ndarray | None]]:
    """Features (n, 2048) and boxes (n, 4) in 0..1 of each RGB picture, 10 to 100 of them."""
    own = next(model.parameters())
    given: list[tuple[np.ndarray, np.ndarray | None]] = []
    for picture in pictures:
        short, long = sorted(picture.size)
        scale = SHORT_SIDE / short
        if round(scale * long) > LONG_SIDE:
            scale = LONG_SIDE / long
        pixels = torch.from_numpy(np.asarray(picture, np.float32)[:, :, ::-1] - np.array(MEAN, np.float32))
        size = [max(1, round(side * scale)) for side in pixels.shape[:2]]
        scaled = F.interpolate(pixels.permute(2, 0, 1).unsqueeze(0), size, mode="bilinear")[0]
        features, boxes = model(scaled.to(own), scale)
        whole = boxes.new_tensor([size[1], size[0], size[1], size[0]])
        given.append((features.float().cpu().numpy(), (boxes / whole).clamp(0, 1).cpu().numpy()))
    return given
