"""Backbones with the weights of their pre-training, and their grids and plain pixels as extractors."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from legenda.compute import ComputeOptions
from legenda.errors import ConfigError, LegendaError, first_line, import_extra
from legenda.extractors.base import DOWNLOAD_HINT, IMAGENET_MEAN, IMAGENET_STD, digest_of
from legenda.images.extractor import Extractor
from legenda.images.regions import ImageRegions
from legenda.models.backbone import Backbone, BackboneConfig, feature_layers
from legenda.models.weights import read_tensors
from legenda.regions import Regions

IMAGE_SIZE, MAX_SIDE = 224, 2048
"""The side of images as pixels, by default and at most."""


def load_backbone(
    name: str, image_size: int | None = None, *, allow_download: bool = True, **options: bool
) -> Backbone:
    """Return a backbone with pre-trained weights, on the CPU, and with gradients for what its map depends on.

    name: torchvision:MODEL or timm:MODEL with its published weights, or, followed by :FILE, those of a file; hf:MODEL,
    a model or a folder of transformers. image_size: by default that of the pre-training. options: further fields of
    `BackboneConfig`. Raise ConfigError for an unknown name, and for a network that does not map an image to a grid.
    """
    kind, _, model = name.partition(":")
    if kind not in ("hf", "torchvision", "timm") or not model:
        raise ConfigError(
            f"there is no backbone {name} that is trained; name torchvision:MODEL, timm:MODEL or hf:MODEL"
        )
    if kind == "hf":
        backbone = _load_hf(model, image_size, options, allow_download)
    else:
        model, _, file = model.partition(":")
        config = BackboneConfig(name=f"{kind}:{model}", image_size=image_size or IMAGE_SIZE, **options)
        load = {"torchvision": _load_torchvision, "timm": _load_timm}[kind]
        try:
            backbone = Backbone(config, *load(config, model, file, allow_download))
        except LegendaError:
            raise
        except Exception as error:  # the libraries raise exceptions of any type for models and files
            raise ConfigError(f"{name} cannot be loaded ({first_line(error)}); name a model of {kind}") from error
    try:
        backbone.set_trainable(True)
    except Exception as error:  # networks raise exceptions of any type for what they cannot read
        side = backbone.config.image_size
        raise ConfigError(
            f"{name} has no feature map of {side} x {side} pixels ({first_line(error)}); name another backbone"
        ) from error
    return backbone


Loaded = tuple[nn.Module, Any, Any]
"""A network, and the mean and the standard deviation of its pixels."""


def _load_torchvision(config: BackboneConfig, model: str, file: str, allow_download: bool) -> Loaded:
    models: Any = import_extra("torchvision", "vision").models
    from legenda.extractors.detection import load_published

    if file:
        net = models.get_model(model, weights=None)
        net.load_state_dict(read_tensors(Path(file), f"name weights of {model}"))
    else:
        net = load_published(models.get_model_builder(model), model, allow_download)
    return feature_layers(net, config.name), IMAGENET_MEAN, IMAGENET_STD


def _load_timm(config: BackboneConfig, model: str, file: str, allow_download: bool) -> Loaded:
    timm: Any = import_extra("timm", "vision")
    if not (file or allow_download):
        raise ConfigError(f"{config.name} is not on this machine; {DOWNLOAD_HINT}")
    overlay = {"pretrained_cfg_overlay": {"file": file}} if file else {}
    net = timm.create_model(model, pretrained=True, features_only=True, out_indices=(-1,), **overlay)
    published: Mapping[str, Any] = net.pretrained_cfg
    return net, published["mean"], published["std"]


def _load_hf(name: str, image_size: int | None, options: dict[str, Any], allow_download: bool) -> Backbone:
    model, processor = load_pretrained(name, "AutoModel", allow_download=allow_download)
    size = getattr(processor, "crop_size", None) or processor.size
    side = image_size or int(size.get("height") or size.get("shortest_edge") or IMAGE_SIZE)
    architecture = json.loads(model.config.to_json_string(use_diff=False))
    config = BackboneConfig(name="hf", image_size=side, architecture=architecture, **options)
    mean, std = (values or [0.5] * 3 for values in (processor.image_mean, processor.image_std))
    return Backbone(config, getattr(model, "vision_model", model), mean, std)


def load_pretrained(
    name: str, auto_class: str, processor: str = "AutoImageProcessor", *, allow_download: bool
) -> tuple[Any, Any]:
    """Return a model of transformers by a class such as AutoModel, in evaluation mode, and its processor.

    Code of the model's own is never run. Raise ConfigError, naming the model, when it cannot be loaded.
    """
    transformers: Any = import_extra("transformers", "vision")
    options: Any = {"trust_remote_code": False, "local_files_only": not allow_download}
    transformers.utils.logging.disable_progress_bar()
    with hub_errors(name, allow_download=allow_download):
        model = getattr(transformers, auto_class).from_pretrained(name, dtype=torch.float32, **options).eval()
        return model, getattr(transformers, processor).from_pretrained(name, **options)


@contextmanager
def hub_errors(name: str, *, allow_download: bool) -> Iterator[None]:
    """Raise ConfigError, naming the model, where the block cannot load it."""
    try:
        yield
    except Exception as error:  # the hub, its cache and its files raise exceptions of any type
        if not (allow_download or Path(name).is_dir()):
            raise ConfigError(f"hf:{name} is not complete on this machine; {DOWNLOAD_HINT}") from error
        raise ConfigError(
            f"hf:{name} cannot be loaded ({first_line(error)}); name a model of the hub or a folder"
        ) from error


def to_pixels(images: list[Image.Image], side: int) -> Tensor:
    """Return RGB images as squares of pixels in 0..1, `(B, 1, 3 * side * side)`."""
    resized = [np.asarray(image.resize((side, side), Image.Resampling.BICUBIC), np.float32) for image in images]
    return (torch.from_numpy(np.stack(resized)) / 255).permute(0, 3, 1, 2).flatten(1).unsqueeze(1)


def load_pixels(model: str, *, compute: ComputeOptions) -> Extractor:  # noqa: ARG001
    """Return the pixels of images of a side, each one region, which captioners with a backbone read."""
    if not model.isdecimal() or not 0 < int(model) <= MAX_SIDE:
        raise ConfigError(
            f"pixels needs the side of the images, as in pixels:224 and at most {MAX_SIDE}, not {model!r}"
        )
    box = np.array([[0, 0, 1, 1]], np.float32)

    def extract(images: list[Image.Image]) -> list[ImageRegions]:
        return [(pixels.numpy(), box) for pixels in to_pixels(images, int(model))]

    return Extractor(f"pixels:{model}", extract)


def load_timm(model: str, *, compute: ComputeOptions, allow_download: bool = True) -> Extractor:
    """Return the grid of a backbone of timm, MODEL or MODEL:FILE."""
    backbone = load_backbone(f"timm:{model}", allow_download=allow_download).to(compute.resolve())
    model, _, weights = model.partition(":")
    digest = f"@{digest_of([Path(weights)])}" if weights else ""
    return Extractor(f"timm:{model}{digest}", partial(extract_map, backbone))


@torch.inference_mode()
def extract_map(backbone: Backbone, images: list[Image.Image]) -> list[ImageRegions]:
    """Return the cells of each image, row by row, and their boxes."""
    regions = backbone(Regions(to_pixels(images, backbone.config.image_size).to(backbone.mean)))
    assert regions.boxes is not None
    return [(x.cpu().numpy(), boxes.cpu().numpy()) for x, boxes in zip(regions.features, regions.boxes, strict=True)]
