"""Extractors from Hugging Face's transformers: grids of any vision backbone, regions of DETR and RT-DETR."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from legenda.errors import UserError
from legenda.extractors.device import best_device
from legenda.features.validate import grid_boxes

Regions = list[tuple[np.ndarray, np.ndarray | None]]

LEAST, MOST, CONFIDENT = 10, 100, 0.2
"""Regions of a picture: those of at least this confidence, but no fewer and no more (as Bottom-Up attention has it)."""
_MOST_SPECIALS = 16
"""More tokens in front of a grid than this are no class and register tokens."""


def load_hf(name: str, *, half: bool = False) -> Callable[[list[Image.Image]], Regions]:
    """What extracts with the model of that name on the hub, or in that folder.

    Raises UserError, naming the model, when it cannot be had or is of a kind that gives no regions.
    """
    try:
        import transformers
    except ImportError as error:
        raise UserError("extractors of Hugging Face need the extra vision; install legenda[vision]") from error
    try:
        config = transformers.AutoConfig.from_pretrained(name)
        detects = any("ObjectDetection" in kind for kind in config.architectures or ())
        kind = transformers.AutoModelForObjectDetection if detects else transformers.AutoModel
        model: Any = kind.from_pretrained(name, dtype=torch.float16 if half else torch.float32)
        processor = transformers.AutoImageProcessor.from_pretrained(name)
    except Exception as error:  # the hub, its cache and its files fail in every way there is
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"hf:{name} cannot be loaded ({reason}); name a model of the hub or a folder of one") from error
    device = best_device()
    if detects:
        return _Detector(model.eval().to(device), processor)
    return _Grid(getattr(model, "vision_model", model).eval().to(device), processor, name)


class _Grid:
    """The last map of a backbone: its cells cover the picture, which is squeezed into the model's square."""

    def __init__(self, model: Any, processor: Any, name: str) -> None:
        self._model, self._name = model, name
        size = getattr(processor, "crop_size", None) or processor.size
        self._side = int(size.get("height") or size.get("shortest_edge") or 224)
        self._mean, self._deviation = (
            torch.tensor(values or [0.5] * 3).reshape(3, 1, 1) for values in (processor.image_mean, processor.image_std)
        )
        self._patch = getattr(model.config, "patch_size", None)

    @torch.inference_mode()
    def __call__(self, pictures: list[Image.Image]) -> Regions:
        own = next(self._model.parameters())
        squares = [p.resize((self._side, self._side), Image.Resampling.BICUBIC) for p in pictures]
        pixels = torch.stack([torch.from_numpy(np.asarray(square, np.float32)) for square in squares]) / 255
        pixels = (pixels.permute(0, 3, 1, 2) - self._mean) / self._deviation
        states = self._model(pixel_values=pixels.to(own)).last_hidden_state.float().cpu()
        rows, columns, cells = self._cells(states)
        boxes = grid_boxes(rows, columns)
        return [(own_cells.numpy(), boxes) for own_cells in cells]

    def _cells(self, states: Tensor) -> tuple[int, int, Tensor]:
        """Rows, columns and cells (B, rows * columns, D) of a map (B, D, H, W) or of tokens (B, T, D)."""
        if states.dim() == 4:
            rows, columns = states.shape[2:]
            return rows, columns, states.flatten(2).transpose(1, 2)
        tokens = states.shape[1]
        side = self._side // self._patch if isinstance(self._patch, int) else 0
        if not 0 <= tokens - side * side <= _MOST_SPECIALS or not side:
            side = math.isqrt(tokens)
        if not 0 <= tokens - side * side <= _MOST_SPECIALS:
            raise UserError(f"hf:{self._name} gives {tokens} tokens, which are no grid; name another backbone")
        return side, side, states[:, tokens - side * side :]  # the class and register tokens stand in front


class _Detector:
    """The queries of a DETR whose boxes are likeliest to hold things."""

    def __init__(self, model: Any, processor: Any) -> None:
        self._model, self._processor = model, processor

    @torch.inference_mode()
    def __call__(self, pictures: list[Image.Image]) -> Regions:
        own = next(self._model.parameters())
        inputs = self._processor(images=pictures, return_tensors="pt").to(own.device)
        inputs["pixel_values"] = inputs["pixel_values"].to(own.dtype)
        answer = self._model(**inputs)
        states = answer.last_hidden_state
        logits = answer.logits.float()
        nothing = logits.shape[-1] == self._model.config.num_labels + 1
        chances = logits.softmax(dim=-1)[..., :-1] if nothing else logits.sigmoid()
        centres, sizes = answer.pred_boxes.float().split(2, dim=-1)
        boxes = torch.cat([centres - sizes / 2, centres + sizes / 2], dim=-1).clamp(0, 1)
        return [choose(*one) for one in zip(states.float(), boxes, chances.amax(dim=-1), strict=True)]


def choose(features: Tensor, boxes: Tensor, confidence: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """The regions kept of candidates (n, D), (n, 4) in 0..1 and (n,); the whole picture where none has a box."""
    real = ((boxes[:, 2:] - boxes[:, :2]) > 1e-3).all(dim=1)
    if not real.any():
        best = int(confidence.argmax())
        return features[best : best + 1].cpu().numpy(), np.array([[0, 0, 1, 1]], np.float32)
    features, boxes, confidence = features[real], boxes[real], confidence[real]
    count = int((confidence >= CONFIDENT).sum().clamp(LEAST, MOST))
    kept = confidence.argsort(descending=True)[:count]
    return features[kept].cpu().numpy(), F.relu(boxes[kept]).cpu().numpy()
