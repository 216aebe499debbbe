"""A vision network as a part of a captioner, which is trained with it; its last feature map is the grid of regions.

An image is one region that covers it. Its features are the pixels of a square, 3 x S x S values in 0..1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint_sequential

from legenda.config import Config, PositiveInt
from legenda.errors import ConfigError, import_extra
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
        self.net = build_network(config) if net is None else net
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


def build_network(config: BackboneConfig) -> nn.Module:
    """Return the network of an architecture with random weights."""
    kind, _, name = config.name.partition(":")
    if kind == "torchvision":
        return feature_layers(import_extra("torchvision", "vision").models.get_model(name, weights=None), config.name)
    if kind == "timm":
        return import_extra("timm", "vision").create_model(name, features_only=True, out_indices=(-1,))
    if kind == "hf":
        transformers = import_extra("transformers", "vision")
        model = transformers.AutoModel.from_config(transformers.AutoConfig.for_model(**config.architecture))
        return getattr(model, "vision_model", model)
    raise ConfigError(f"{config.name} is no backbone that is trained; name torchvision:MODEL, timm:MODEL or hf:MODEL")


def feature_layers(model: Any, name: str) -> nn.Sequential:
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
