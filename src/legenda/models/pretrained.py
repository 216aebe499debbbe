"""Vision networks with published weights: backbones of torchvision, timm and transformers, and models of the hub."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import torch
from torch import nn

from legenda.errors import ConfigError, LegendaError, first_line, import_extra
from legenda.io import verified
from legenda.models.backbone import Backbone, BackboneConfig, feature_layers
from legenda.models.weights import read_tensors

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Mean and standard deviation of red, green and blue, in 0..1, by which networks of ImageNet normalize pixels."""
DOWNLOAD_HINT = "add --allow-download (in Python, allow_download=True) to fetch it, or name it with --extractor"
IMAGE_SIZE = 224
"""The side of images as pixels, by default."""


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
        config = BackboneConfig(name=f"{kind}:{model}", image_size=image_size or IMAGE_SIZE).replace(**options)
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
    models = import_extra("torchvision", "vision").models
    if file:
        net = models.get_model(model, weights=None)
        net.load_state_dict(read_tensors(Path(file), f"name weights of {model}"))
    else:
        net = load_published(models.get_model_builder(model), model, allow_download)
    return feature_layers(net, config.name), IMAGENET_MEAN, IMAGENET_STD


def _load_timm(config: BackboneConfig, model: str, file: str, allow_download: bool) -> Loaded:
    timm = import_extra("timm", "vision")
    if not (file or allow_download):
        raise ConfigError(f"{config.name} is not on this machine; {DOWNLOAD_HINT}")
    overlay = {"pretrained_cfg_overlay": {"file": file}} if file else {}
    net = timm.create_model(model, pretrained=True, features_only=True, out_indices=(-1,), **overlay)
    published: Mapping[str, object] = net.pretrained_cfg
    return net, published["mean"], published["std"]


def _load_hf(name: str, image_size: int | None, options: dict[str, bool], allow_download: bool) -> Backbone:
    model, processor = load_pretrained(name, "AutoModel", allow_download=allow_download)
    size = getattr(processor, "crop_size", None) or processor.size
    side = image_size or int(size.get("height") or size.get("shortest_edge") or IMAGE_SIZE)
    architecture = json.loads(model.config.to_json_string(use_diff=False))
    config = BackboneConfig(name="hf", image_size=side, architecture=architecture).replace(**options)
    mean, std = (values or [0.5] * 3 for values in (processor.image_mean, processor.image_std))
    return Backbone(config, getattr(model, "vision_model", model), mean, std)


def load_pretrained(
    name: str, auto_class: str, processor: str = "AutoImageProcessor", *, allow_download: bool
) -> tuple[Any, Any]:
    """Return a model of transformers by a class such as AutoModel, in evaluation mode, and its processor.

    Code of the model's own is never run. Raise ConfigError, naming the model, when it cannot be loaded.
    """
    transformers = import_extra("transformers", "vision")
    options: object = {"trust_remote_code": False, "local_files_only": not allow_download}
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


def load_published(build: Any, name: str, allow_download: bool) -> Any:
    """Return a model of torchvision with its published weights; `build` is its function.

    Raise ConfigError where they are neither on this machine nor may be fetched, and DataError where that fails.
    """
    from torchvision.models import get_model_weights

    published: Any = get_model_weights(build)
    file = Path(urlsplit(published.DEFAULT.url).path).name
    if not (allow_download or Path(torch.hub.get_dir(), "checkpoints", file).is_file()):
        raise ConfigError(f"torchvision:{name} is not on this machine; {DOWNLOAD_HINT}")
    return verified(lambda: build(weights="DEFAULT"), f"torchvision:{name}", "name a file, torchvision:MODEL:FILE")
