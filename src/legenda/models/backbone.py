"""A vision network as a part of a captioner, which is trained with it; its last feature map is the grid of regions.

An image is one region that covers it. Its features are the pixels of a square, 3 x S x S values in 0..1. Published
weights are those of torchvision, timm and transformers; models of the hub are read here too.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint_sequential

from legenda.config import Config, PositiveInt
from legenda.errors import ConfigError, LegendaError, first_line, import_extra
from legenda.io import verified
from legenda.models.weights import read_tensors
from legenda.regions import Regions

_MAX_PREFIX_TOKENS = 16
"""The largest number of class and register tokens before the tokens of the grid."""
_CROP_SCALE, _CROP_RATIO, _COLOR_JITTER = (0.7, 1.0), (0.9, 1.1), 0.2


class BackboneConfig(Config):
    """The architecture of a vision network, without weights, and how it is trained."""

    name: str
    """torchvision:MODEL, timm:MODEL or hf (its `architecture` says which)."""
    image_size: PositiveInt
    """The side of the square to which images are resized, in pixels."""
    architecture: Mapping[str, object] = Field(default_factory=dict)
    """The configuration of a model of transformers."""
    augment: bool = False
    """Crop images and change their colors at random in training; captions name left and right, so none is mirrored."""
    gradient_checkpointing: bool = False
    """Compute activations again in the backward pass instead of keeping them: less memory, about a third slower."""

    @property
    def width(self) -> int:
        """The number of values of an image."""
        return 3 * self.image_size**2


class Backbone(nn.Module):
    """Map images as pixels to a grid of regions; statistics of batch normalization stay those of the pre-training."""

    mean: Tensor
    std: Tensor
    net: Any

    def __init__(
        self,
        config: BackboneConfig,
        net: nn.Module | None = None,
        mean: Sequence[float] = (0.5, 0.5, 0.5),
        std: Sequence[float] = (0.5, 0.5, 0.5),
    ) -> None:
        """net: the network with its weights; by default one of the architecture with random ones. mean, std: of the
        pixels, by channel.
        """
        super().__init__()
        self.config = config
        self.net = _build_network(config) if net is None else net
        self.register_buffer("mean", torch.tensor(mean).reshape(3, 1, 1))
        self.register_buffer("std", torch.tensor(std).reshape(3, 1, 1))
        if config.gradient_checkpointing and not isinstance(self.net, nn.Sequential):
            _enable_checkpointing(self.net, config.name)
        if config.augment:
            v2 = import_extra("torchvision.transforms.v2", "vision")
            crop = v2.RandomResizedCrop(config.image_size, scale=_CROP_SCALE, ratio=_CROP_RATIO, antialias=True)
            self._augmentation = v2.Compose([crop, v2.ColorJitter(*[_COLOR_JITTER] * 3)])

    def train(self, mode: bool = True) -> Backbone:
        """Set the mode; batch normalization stays in evaluation mode."""
        super().train(mode)
        for module in self.modules():
            if isinstance(module, _BatchNorm):
                module.training = False
        return self

    def set_trainable(self, trainable: bool) -> int:
        """Give gradients to the parameters that the map depends on, or to none; return the channels of the map."""
        parameters = list(self.requires_grad_(True).eval().parameters())
        with torch.enable_grad():
            cells = self(Regions(self.mean.new_zeros(1, 1, self.config.width))).features
        gradients = torch.autograd.grad(cells.sum(), parameters, allow_unused=True)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.requires_grad_(trainable and gradient is not None)
        return cells.shape[2]

    def forward(self, images: Regions) -> Regions:
        """Return the cells `(B, H * W, D)` of the last feature map, with boxes, of images `(B, 1, 3 * S * S)`.

        Raise ConfigError for a network without a feature map.
        """
        side = self.config.image_size
        pixels = images.features.reshape(-1, 3, side, side)
        if self.training and self.config.augment:
            pixels = torch.stack([self._augmentation(image) for image in pixels])
        cells = self._map((pixels - self.mean) / self.std).float()
        height, width = cells.shape[2:]
        return Regions.from_grid(cells.flatten(2).transpose(1, 2), height, width)

    def _map(self, pixels: Float[Tensor, "B 3 S S"]) -> Float[Tensor, "B D H W"]:
        if isinstance(self.net, nn.Sequential):
            if self.config.gradient_checkpointing and self.training and torch.is_grad_enabled():
                return checkpoint_sequential(self.net, len(self.net), pixels, use_reentrant=False)
            return self.net(pixels)
        if self.config.name == "hf":
            states = self.net(pixel_values=pixels).last_hidden_state
            return states if states.dim() == 4 else self._grid_of_tokens(states)
        cells = self.net(pixels)[-1]
        return cells.permute(0, 3, 1, 2) if getattr(self.net, "output_fmt", None) == "NHWC" else cells

    def _grid_of_tokens(self, states: Float[Tensor, "B T D"]) -> Float[Tensor, "B D H W"]:
        tokens, patch = states.shape[1], getattr(self.net.config, "patch_size", None)
        side = self.config.image_size // patch if isinstance(patch, int) else 0
        if not 0 <= tokens - side * side <= _MAX_PREFIX_TOKENS or not side:
            side = math.isqrt(tokens)
        if not 0 <= tokens - side * side <= _MAX_PREFIX_TOKENS:
            raise ConfigError(f"the backbone returns {tokens} tokens, which are not a grid; name another one")
        return states[:, tokens - side * side :].transpose(1, 2).unflatten(2, (side, side))


def find_backbone(model: nn.Module) -> Backbone | None:
    """Return the backbone of a captioner that has one."""
    backbone = getattr(model, "backbone", None)
    return backbone if isinstance(backbone, Backbone) else None


def _enable_checkpointing(net: object, name: str) -> None:
    """Let a network of transformers or timm checkpoint its layers; raise ConfigError for one that cannot."""
    owners = (net, getattr(net, "model", None))
    names = ("activation_checkpointing_enable", "gradient_checkpointing_enable", "set_grad_checkpointing")
    enable = next((method for owner in owners for way in names if (method := getattr(owner, way, None))), None)
    try:
        if enable is None:
            raise ValueError
        enable()
    except ValueError as error:
        raise ConfigError(f"{name} has no gradient checkpointing; leave data.gradient_checkpointing out") from error


def _build_network(config: BackboneConfig) -> nn.Module:
    """Return the network of an architecture with random weights."""
    kind, _, name = config.name.partition(":")
    if kind == "torchvision":
        return _feature_layers(import_extra("torchvision", "vision").models.get_model(name, weights=None), config.name)
    if kind == "timm":
        return import_extra("timm", "vision").create_model(name, features_only=True, out_indices=(-1,))
    if kind == "hf":
        transformers = import_extra("transformers", "vision")
        model = transformers.AutoModel.from_config(transformers.AutoConfig.for_model(**config.architecture))
        return getattr(model, "vision_model", model)
    raise ConfigError(f"{config.name} is no backbone that is trained; name torchvision:MODEL, timm:MODEL or hf:MODEL")


def _feature_layers(model: Any, name: str) -> nn.Sequential:
    """Return the layers of a classifier of torchvision up to its last feature map; raise ConfigError without one."""
    if hasattr(model, "layer4"):
        first = nn.Sequential(model.conv1, model.bn1, model.relu, model.maxpool)
        return nn.Sequential(first, model.layer1, model.layer2, model.layer3, model.layer4)
    features = getattr(model, "features", None)
    if not isinstance(features, nn.Sequential):
        raise ConfigError(f"{name} has no feature map; name another backbone, such as torchvision:resnet50")
    if hasattr(model, "permute"):  # Swin's features have the channels last
        return nn.Sequential(*features, model.norm, model.permute)
    return features


IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Mean and standard deviation of red, green and blue, in 0..1, by which networks of ImageNet normalize pixels."""
_DOWNLOAD_HINT = "add --allow-download (in Python, allow_download=True) to fetch it, or name it with --extractor"
_IMAGE_SIZE = 224
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
        config = BackboneConfig(name=f"{kind}:{model}", image_size=image_size or _IMAGE_SIZE).replace(**options)
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


_Loaded = tuple[nn.Module, Any, Any]
"""A network, and the mean and the standard deviation of its pixels."""


def _load_torchvision(config: BackboneConfig, model: str, file: str, allow_download: bool) -> _Loaded:
    models = import_extra("torchvision", "vision").models
    if file:
        net = models.get_model(model, weights=None)
        net.load_state_dict(read_tensors(Path(file), f"name weights of {model}"))
    else:
        net = load_published(models.get_model_builder(model), model, allow_download)
    return _feature_layers(net, config.name), IMAGENET_MEAN, IMAGENET_STD


def _load_timm(config: BackboneConfig, model: str, file: str, allow_download: bool) -> _Loaded:
    timm = import_extra("timm", "vision")
    if not (file or allow_download):
        raise ConfigError(f"{config.name} is not on this machine; {_DOWNLOAD_HINT}")
    overlay = {"pretrained_cfg_overlay": {"file": file}} if file else {}
    net = timm.create_model(model, pretrained=True, features_only=True, out_indices=(-1,), **overlay)
    published: Mapping[str, object] = net.pretrained_cfg
    return net, published["mean"], published["std"]


def _load_hf(name: str, image_size: int | None, options: dict[str, bool], allow_download: bool) -> Backbone:
    model, processor = load_pretrained(name, "AutoModel", allow_download=allow_download)
    size = getattr(processor, "crop_size", None) or processor.size
    side = image_size or int(size.get("height") or size.get("shortest_edge") or _IMAGE_SIZE)
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
            raise ConfigError(f"hf:{name} is not complete on this machine; {_DOWNLOAD_HINT}") from error
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
        raise ConfigError(f"torchvision:{name} is not on this machine; {_DOWNLOAD_HINT}")
    return verified(lambda: build(weights="DEFAULT"), f"torchvision:{name}", "name a file, torchvision:MODEL:FILE")
