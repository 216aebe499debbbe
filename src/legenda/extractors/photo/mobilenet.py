"""MobileNetV2 1.0 for about 224 x 224 pixels, normalization folded into the convolutions."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
"""Expansion, channels, blocks and first stride of each stage (Sandler et al., CVPR 2018, Table 2)."""


class _Conv(nn.Conv2d):
    """A convolution with TensorFlow's padding, which is asymmetric for a stride of 2."""

    def forward(self, input: Tensor) -> Tensor:
        """Return the map, of ceil(size / stride) cells on each side."""
        kernel, stride = self.kernel_size[0], self.stride[0]
        totals = [max((-(-size // stride) - 1) * stride + kernel - size, 0) for size in input.shape[-2:]]
        if all(total % 2 == 0 for total in totals):  # F.pad would copy the map
            halves = [total // 2 for total in totals]
            return F.conv2d(input, self.weight, self.bias, self.stride, halves, groups=self.groups)
        pads = [pad for total in reversed(totals) for pad in (total // 2, total - total // 2)]
        return super().forward(F.pad(input, pads))


def _conv(inputs: int, outputs: int, kernel: int = 1, stride: int = 1, groups: int = 1) -> nn.Sequential:
    return nn.Sequential(_Conv(inputs, outputs, kernel, stride, groups=groups), nn.ReLU6(inplace=True))


class _Block(nn.Module):
    """An inverted residual block."""

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        super().__init__()
        inner = inputs * expansion
        first = [_conv(inputs, inner)] if expansion > 1 else []
        self.conv = nn.Sequential(*first, _conv(inner, inner, 3, stride, inner), _Conv(inner, outputs, 1))
        self.has_skip = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        """Return the output of the block."""
        return x + self.conv(x) if self.has_skip else self.conv(x)


class MobileNetV2(nn.Module):
    """Map RGB images in -1..1 `(B, 3, H, W)` to `(B, 1280, H / 32, W / 32)`; `classifier` takes the mean of a map."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [_conv(3, 32, 3, 2)]
        channels = 32
        for expansion, outputs, blocks, stride in _STAGES:
            for block in range(blocks):
                layers.append(_Block(channels, outputs, stride if block == 0 else 1, expansion))
                channels = outputs
        self.features = nn.Sequential(*layers, _conv(channels, 1280))
        self.classifier = nn.Linear(1280, 1001)

    def forward(self, x: Tensor) -> Tensor:
        """Return the last map."""
        return self.features(x.contiguous(memory_format=torch.channels_last))
