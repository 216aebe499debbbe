"""Extractors from Hugging Face's transformers: grids of any vision backbone, regions of DETR and RT-DETR."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from legenda.data.features.base import grid_boxes
from legenda.errors import ConfigError, DataError, import_extra
from legenda.extractors.base import DOWNLOAD_HINT, Extract, ImageRegions
from legenda.extractors.detection import map_groups, select_regions

_MAX_PREFIX_TOKENS = 16
"""The largest number of class and register tokens before the tokens of the grid."""


def load_hf(name: str, device: torch.device, allow_download: bool = True) -> Extract:
    """Return the extract function of a model on the hub or in a folder.

    Code of the model's own is never run. Raise ConfigError, naming the model, when it cannot be loaded.
    """
    transformers = import_extra("transformers", "vision")
    options: Any = {"trust_remote_code": False, "local_files_only": not allow_download}
    try:
        config = transformers.AutoConfig.from_pretrained(name, **options)
        is_detector = any("ObjectDetection" in architecture for architecture in config.architectures or ())
        auto_class = transformers.AutoModelForObjectDetection if is_detector else transformers.AutoModel
        model: Any = auto_class.from_pretrained(name, dtype=torch.float32, **options)
        processor = transformers.AutoImageProcessor.from_pretrained(name, **options)
    except Exception as error:  # the hub, its cache and its files raise exceptions of any type
        if not allow_download:
            raise ConfigError(f"hf:{name} is not complete on this machine; {DOWNLOAD_HINT}") from error
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ConfigError(f"hf:{name} cannot be loaded ({reason}); name a model of the hub or a folder") from error
    if is_detector:
        return Detector(model.eval().to(device), processor, name)
    return _Grid(getattr(model, "vision_model", model).eval().to(device), processor, name)


class _Grid:
    """The last feature map of a backbone, for images resized to a square."""

    def __init__(self, model: Any, processor: Any, name: str) -> None:
        self._model, self._name = model, name
        size = getattr(processor, "crop_size", None) or processor.size
        self._side = int(size.get("height") or size.get("shortest_edge") or 224)
        self._mean, self._std = (
            torch.tensor(values or [0.5] * 3).reshape(3, 1, 1) for values in (processor.image_mean, processor.image_std)
        )
        self._patch_size = getattr(model.config, "patch_size", None)

    @torch.inference_mode()
    def __call__(self, images: list[Image.Image]) -> list[ImageRegions]:
        parameter = next(self._model.parameters())
        resized = [image.resize((self._side, self._side), Image.Resampling.BICUBIC) for image in images]
        pixels = torch.stack([torch.from_numpy(np.asarray(image, np.float32)) for image in resized]) / 255
        pixels = (pixels.permute(0, 3, 1, 2) - self._mean) / self._std
        states = self._model(pixel_values=pixels.to(parameter)).last_hidden_state.float().cpu()
        height, width, cells = self._cells(states)
        boxes = grid_boxes(height, width)
        return [(features.numpy(), boxes) for features in cells]

    def _cells(self, states: Tensor) -> tuple[int, int, Tensor]:
        """Return height, width and cells (B, H * W, D) of a map (B, D, H, W) or of tokens (B, T, D)."""
        if states.dim() == 4:
            height, width = states.shape[2:]
            return height, width, states.flatten(2).transpose(1, 2)
        tokens = states.shape[1]
        side = self._side // self._patch_size if isinstance(self._patch_size, int) else 0
        if not 0 <= tokens - side * side <= _MAX_PREFIX_TOKENS or not side:
            side = math.isqrt(tokens)
        if not 0 <= tokens - side * side <= _MAX_PREFIX_TOKENS:
            raise DataError(f"hf:{self._name} returns {tokens} tokens, which are not a grid; name another backbone")
        return side, side, states[:, tokens - side * side :]


@dataclass(frozen=True)
class Detector:
    """The last decoder states of a DETR for its most confident queries, num_regions of them."""

    model: Any
    processor: Any
    name: str
    num_regions: int | None = None

    def with_num_regions(self, num_regions: int) -> Detector:
        """Return the detector with a fixed number of regions; raise ConfigError where it has fewer queries."""
        queries = getattr(self.model.config, "num_queries", num_regions)
        if num_regions > queries:
            raise ConfigError(
                f"hf:{self.name} has {queries} queries, fewer than {num_regions} regions; ask for fewer, or name "
                "another detector"
            )
        return replace(self, num_regions=num_regions)

    def __call__(self, images: list[Image.Image]) -> list[ImageRegions]:
        """Return the regions; images of one size are a batch where others would be padded."""
        pads = getattr(self.processor, "do_pad", False)
        return map_groups(self._extract, images, lambda image: image.size if pads else None)

    @torch.inference_mode()
    def _extract(self, images: list[Image.Image]) -> list[ImageRegions]:
        parameter = next(self.model.parameters())
        inputs = self.processor(images=images, return_tensors="pt").to(parameter.device)
        inputs["pixel_values"] = inputs["pixel_values"].to(parameter.dtype)
        outputs = self.model(**inputs)
        states, logits = outputs.last_hidden_state.float(), outputs.logits.float()
        has_no_object_class = logits.shape[-1] == self.model.config.num_labels + 1
        probs = logits.softmax(dim=-1)[..., :-1] if has_no_object_class else logits.sigmoid()
        centers, sizes = outputs.pred_boxes.float().split(2, dim=-1)
        boxes = torch.cat([centers - sizes / 2, centers + sizes / 2], dim=-1).clamp(0, 1)
        found = zip(states, boxes, probs.amax(dim=-1), strict=True)
        return [select_regions(*image, self.num_regions) for image in found]
