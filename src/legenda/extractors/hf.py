"""Extractors from Hugging Face's transformers: grids of any vision backbone, regions of DETR and RT-DETR."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from legenda.compute import ComputeOptions
from legenda.errors import ConfigError, import_extra
from legenda.extractors.backbone import extract_map
from legenda.extractors.detection import map_groups, select_regions
from legenda.features.extractors import digest_of
from legenda.images.extractor import Extract, Extractor, ExtractorIdentity, ImageRegions
from legenda.models.backbone import hub_errors, load_backbone, load_pretrained


def load_hf(model: str, *, compute: ComputeOptions, allow_download: bool = True) -> Extractor:
    """Return a backbone or a DETR on the hub or in a folder.

    Code of the model's own is never run. Raise ConfigError, naming the model, when it cannot be loaded.
    """
    options: object = {"trust_remote_code": False, "local_files_only": not allow_download}
    device, folder = compute.resolve(), Path(model)
    with hub_errors(model, allow_download=allow_download):
        config = import_extra("transformers", "vision").AutoConfig.from_pretrained(model, **options)
    files = sorted(folder.glob("*.safetensors")) + sorted(folder.glob("*.json")) if folder.is_dir() else []
    name = folder.resolve().name if files else model
    identity = ExtractorIdentity(name="hf", model=name, digest=digest_of(files))
    if not any("ObjectDetection" in architecture for architecture in config.architectures or ()):
        backbone = load_backbone(f"hf:{model}", allow_download=allow_download).to(device)
        return Extractor(identity, partial(extract_map, backbone))
    net, processor = load_pretrained(model, "AutoModelForObjectDetection", allow_download=allow_download)
    extract = partial(_extract_queries, net.to(device), processor)

    def with_num_regions(count: int) -> Extract:
        queries = getattr(net.config, "num_queries", count)
        if count > queries:
            raise ConfigError(
                f"hf:{model} has {queries} queries, fewer than {count} regions; ask for fewer, or name another detector"
            )
        return partial(extract, num_regions=count)

    return Extractor(identity, extract, with_num_regions=with_num_regions)


def _extract_queries(
    model: Any, processor: Any, images: list[Image.Image], num_regions: int | None = None
) -> list[ImageRegions]:
    """Return the last decoder states of a DETR for its most confident queries, `num_regions` of them, and their boxes.

    Images of one size are a batch where others would be padded.
    """
    pads = getattr(processor, "do_pad", False)
    extract = partial(_extract, model, processor, num_regions)
    return map_groups(extract, images, lambda image: image.size if pads else None)


@torch.inference_mode()
def _extract(model: Any, processor: Any, num_regions: int | None, images: list[Image.Image]) -> list[ImageRegions]:
    parameter = next(model.parameters())
    inputs = processor(images=images, return_tensors="pt").to(parameter.device)
    inputs["pixel_values"] = inputs["pixel_values"].to(parameter.dtype)
    outputs = model(**inputs)
    states, logits = outputs.last_hidden_state.float(), outputs.logits.float()
    has_no_object_class = logits.shape[-1] == model.config.num_labels + 1
    probs = logits.softmax(dim=-1)[..., :-1] if has_no_object_class else logits.sigmoid()
    centers, sizes = outputs.pred_boxes.float().split(2, dim=-1)
    boxes = torch.cat([centers - sizes / 2, centers + sizes / 2], dim=-1).clamp(0, 1)
    detections = zip(states, boxes, probs.amax(dim=-1), strict=True)
    return [select_regions(*image, num_regions) for image in detections]
