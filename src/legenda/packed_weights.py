"""Linear layers by oneDNN's kernels on CPUs, with weights packed in their layout where no gradients are wanted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import Function
from torch.nn import functional as F

from legenda.machine import is_intel

LinearMap = Callable[[Tensor], Tensor]
"""A product with a weight matrix, and the sum with a bias."""
_MIN_NUMEL, _MIN_PRODUCTS = 2**16, 2**21
"""Numbers of weights, and of products with them, from which layers are trained by oneDNN's kernels.

Small models are trained by F.linear, so that their numbers are those of plain PyTorch.
"""
_FEW_ROWS = 4
"""Rows from which packed float32 weights are faster on Intel processors."""


class SplitLinear(nn.Module):
    """Base class of modules that multiply parts of their weights by inputs of their own."""

    packed: list[_PackedMap] | None = None

    def parts(self) -> Sequence[tuple[Tensor, Tensor | None]]:
        """Return weight and bias of each part."""
        raise NotImplementedError

    def linear_maps(self) -> Sequence[LinearMap]:
        """Return the products with the parts for one pass over the module, packed after `pack_weights`."""
        if self.packed is None:
            return [partial(F.linear, weight=weight, bias=bias) for weight, bias in self.parts()]
        if torch.is_grad_enabled():
            for part in self.packed:
                part.forget()
            return [partial(linear, weight=weight.contiguous(), bias=bias) for weight, bias in self.parts()]
        return self.packed


def has_slow_mkl() -> bool:
    """Return whether F.linear multiplies by MKL on a processor that is not Intel's, where oneDNN is twice as fast.

    On Intel's processors oneDNN takes 1.0 to 1.35 times as long as MKL, except with packed weights and at least
    `_FEW_ROWS` rows.
    """
    return torch.backends.mkl.is_available() and not is_intel()


def pack_weights(model: nn.Module, dtype: torch.dtype = torch.float32) -> None:
    """Compute the linear layers of a float32 model by oneDNN's kernels on CPUs, without gradients with packed weights.

    dtype: of the packed weights; with bfloat16 each product is rounded once, and all other operations are computed in
    float32, as is the layer of the logits, whose rounding would change one caption in twelve (docs/results/speed.md).
    Builds of PyTorch without MKL keep their own float32 products, those without oneDNN all.
    A weight is packed when it is first used, and again after a change; the parameters stay as they are. Changes of
    `parameter.data` and of inference tensors, which PyTorch does not count, are not seen.

    Decoding reads all weights for every token. Against F.linear, greedy decoding (benchmarks/models.py, 10 images) is
    1.9 to 2.2 times as fast on an AMD EPYC and 1.2 to 1.8 on an Intel Xeon, beam 3 1.7 to 2.1 and 1.1 to 1.3 times;
    on the AMD EPYC one image 2.2 to 3.3, self-critical steps 1.6 to 1.9 times. docs/results/speed.md has the rest.
    """
    if not torch.backends.mkldnn.is_available():
        return
    for name, module in model.named_modules():
        kind = torch.float32 if name.endswith("decoder.output") else dtype
        if kind == torch.float32 and not torch.backends.mkl.is_available():
            continue
        if isinstance(module, SplitLinear):
            module.packed = [_PackedMap(module, index, kind) for index in range(len(module.parts()))]
        elif type(module) is nn.Linear:
            module.forward = _PackedMap(module, 0, kind)


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None, *, min_numel: int = _MIN_NUMEL) -> Tensor:
    """Return `F.linear(input, weight, bias)`, where `has_slow_mkl` by oneDNN's kernels for `min_numel` float32 weights.

    The gradient is computed with the same kernels.
    """
    if (
        torch.compiler.is_compiling()
        or not has_slow_mkl()
        or {input.dtype, weight.dtype} != {torch.float32}
        or input.device.type != "cpu"
        or weight.numel() < min_numel
        or input.numel() * len(weight) < _MIN_PRODUCTS
        or torch.is_autocast_enabled("cpu")
        or not torch.backends.mkldnn.is_available()
    ):
        return F.linear(input, weight, bias)
    return OneDNNLinear.apply(input.flatten(0, -2), weight, bias).view(*input.shape[:-1], len(weight))


class OneDNNLinear(Function):
    """The product `x weight^T + bias` of float32 matrices; its gradient consists of the same products, and so on."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return multiply(_dense(x), _dense(weight), bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        x, weight = ctx.saved_tensors
        wants_x, wants_weight, wants_bias = ctx.needs_input_grad
        return (
            OneDNNLinear.apply(gradient, weight.T, None) if wants_x else None,
            OneDNNLinear.apply(gradient.T, x.T, None) if wants_weight else None,
            gradient.sum(0) if wants_bias else None,
        )


def _dense(x: Tensor) -> Tensor:
    """Return the matrix without gaps in memory, for which oneDNN has no fast kernel."""
    return x if x.is_contiguous() or x.T.is_contiguous() else x.contiguous()


def multiply(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return `x weight^T + bias` by oneDNN, without gradients; weight: packed, or a matrix without gaps."""
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


class _PackedMap:
    """The product with one part of a module's weights."""

    def __init__(self, module: nn.Module, index: int, dtype: torch.dtype) -> None:
        self.module, self.index, self.dtype = module, index, dtype
        self._packed: tuple[Any, Tensor, Tensor | None] | None = None

    def __call__(self, input: Tensor) -> Tensor:
        """Return the result of the layer; by `F.linear` in other dtypes, on other devices, and while compiling."""
        x, parameters = input, list(self.module.parameters())
        is_float32_on_cpu = x.dtype == parameters[0].dtype == torch.float32 and x.device.type == "cpu"
        plain = torch.is_grad_enabled() or torch.is_autocast_enabled("cpu") or torch.compiler.is_compiling()
        if plain or not is_float32_on_cpu:
            self.forget()
            return linear(x, *self._part())
        if self.dtype == torch.float32 and x.numel() < _FEW_ROWS * x.shape[-1] and not has_slow_mkl():
            return F.linear(x, *self._part())
        key = [(p.data_ptr(), 0 if p.is_inference() else p._version) for p in parameters]
        packed = self._packed
        if packed is None or packed[0] != key:
            self._packed = packed = key, *self._pack()
        _, weight, bias = packed
        return multiply(x.to(self.dtype), weight, bias).to(x.dtype)

    def forget(self) -> None:
        """Drop the packed weights; fused optimizers change the parameters without a new version."""
        self._packed = None

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
