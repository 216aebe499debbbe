"""Linear layers with weights packed for inference on CPUs, in the layout of oneDNN's kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

LinearMap = Callable[[Tensor], Tensor]
"""A product with a weight matrix, and the sum with a bias."""


class SplitLinear(nn.Module):
    """Base class of modules that multiply parts of their weights by inputs of their own."""

    packed: list[LinearMap] | None = None

    def parts(self) -> Sequence[tuple[Tensor, Tensor | None]]:
        """Return weight and bias of each part."""
        raise NotImplementedError

    def linear_maps(self) -> list[LinearMap]:
        """Return the products with the parts, packed after `pack_weights`."""
        return self.packed or [partial(F.linear, weight=weight, bias=bias) for weight, bias in self.parts()]


def pack_weights(model: nn.Module, dtype: torch.dtype = torch.float32) -> None:
    """Compute the linear layers of a float32 model with packed weights wherever no gradients are wanted, on CPUs.

    dtype: of the packed weights; with bfloat16 each product is rounded once, and all other operations are computed in
    float32, as is the layer of the logits, whose rounding would change one caption in twelve (docs/results/speed.md).
    A weight is packed when it is first used, and again after a change; the parameters stay as they are. Changes of
    `parameter.data` and of inference tensors, which PyTorch does not count, are not seen.

    Decoding reads all weights for every token. Greedy decoding and beam 3 (benchmarks/models.py, 10 images, AMD EPYC)
    are 1.5 to 1.9 times as fast in float32, of one image 1.7 to 2.7 times; docs/results/speed.md has the rest.
    """
    if not torch.backends.mkldnn.is_available():
        return
    for name, module in model.named_modules():
        if isinstance(module, SplitLinear):
            module.packed = [_PackedMap(module, index, dtype) for index in range(len(module.parts()))]
        elif type(module) is nn.Linear:
            module.forward = _PackedMap(module, 0, torch.float32 if name.endswith("decoder.output") else dtype)


@contextmanager
def packed_weights(model: nn.Module) -> Iterator[None]:
    """Pack the weights within the block, in which they must not change; afterwards no packed weights are left.

    Two searches of a self-critical step (greedy baseline and samples) are then faster than the packing takes:
    benchmarks/models.py, task `self_critical`.
    """
    pack_weights(model)
    try:
        yield
    finally:
        for module in model.modules():
            if isinstance(module, SplitLinear):
                module.packed = None
            elif isinstance(vars(module).get("forward"), _PackedMap):
                del module.forward


class _PackedMap:
    """The product with one part of a module's weights."""

    def __init__(self, module: nn.Module, index: int, dtype: torch.dtype) -> None:
        self.module, self.index, self.dtype = module, index, dtype
        self._packed: tuple[Any, Tensor, Tensor | None] | None = None

    def __call__(self, input: Tensor) -> Tensor:
        """Return the result of the layer; by `F.linear` with gradients, autocast, and other dtypes and devices."""
        x, parameters = input, list(self.module.parameters())
        is_float32_on_cpu = x.dtype == parameters[0].dtype == torch.float32 and x.device.type == "cpu"
        plain = torch.is_grad_enabled() or torch.is_autocast_enabled("cpu") or torch.compiler.is_compiling()
        if plain or not is_float32_on_cpu:
            self._packed = None  # fused optimizers change weights without counting a version
            return F.linear(x, *self._part())
        key = [(p.data_ptr(), 0 if p.is_inference() else p._version) for p in parameters]
        packed = self._packed
        if packed is None or packed[0] != key:
            self._packed = packed = key, *self._pack()
        _, weight, bias = packed
        return torch.ops.mkldnn._linear_pointwise(x.to(self.dtype), weight, bias, "none", [], "").to(x.dtype)

    def __reduce__(self) -> tuple[Any, ...]:  # copies and files hold no packed weights
        return _PackedMap, (self.module, self.index, self.dtype)

    def _part(self) -> tuple[Tensor, Tensor | None]:
        if isinstance(self.module, SplitLinear):
            return self.module.parts()[self.index]
        assert isinstance(self.module, nn.Linear)
        return self.module.weight, self.module.bias

    def _pack(self) -> tuple[Tensor, Tensor | None]:
        weight, bias = self._part()
        packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach().to(self.dtype).contiguous(), None)
        return packed, None if bias is None else bias.detach().to(self.dtype)
