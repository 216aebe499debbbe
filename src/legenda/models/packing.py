"""Weights packed for inference on a CPU, beside the model, whose own weights stay as they are.

Decoding reads all weights for every token. oneDNN, which PyTorch holds, multiplies few rows by weights in a layout of
its own 1.2 to 2.5 times as fast as `F.linear` (greedy decoding, one AMD EPYC core). Such a packed copy takes as much
memory as the weights.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar, cast
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn import functional as F

LinearMap = Callable[[Tensor], Tensor]
"""A product with a weight matrix, and the sum with a bias."""
MIN_NUMEL = 2**18
"""Weights from which a layer is packed; below, converting the input costs more than the product gains."""
_SAMPLES = 16
"""Values of each parameter that are compared before a packed copy is used again."""
M = TypeVar("M", bound=nn.Module)


class SplitLinear(nn.Module):
    """Base class of modules that multiply parts of their weights by inputs of their own."""

    packed: Sequence[LinearMap] | None = None
    """The products with packed weights, in a view of the module that `packed` returns."""

    def parts(self) -> Sequence[tuple[Tensor, Tensor | None]]:
        """Return weight and bias of each part."""
        raise NotImplementedError

    def linear_maps(self) -> Sequence[LinearMap]:
        """Return the products with the parts."""
        if self.packed is not None and not _needs_parameters():
            return self.packed
        return [partial(F.linear, weight=weight, bias=bias) for weight, bias in self.parts()]

    def __getstate__(self) -> dict[str, object]:
        return {**super().__getstate__(), "packed": None}


class _PackedLinear(nn.Linear):
    """The view of a linear layer that multiplies by a packed copy of its weight."""

    packed: Sequence[LinearMap] | None = None

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input) if self.packed is None or _needs_parameters() else self.packed[0](input)

    def __getstate__(self) -> dict[str, object]:
        return {**super().__getstate__(), "packed": None}


class _Product:
    """The product `x weight^T + bias` without gradients, with a weight packed by oneDNN in `dtype`."""

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.detach().to(dtype).contiguous(), None)
        self.bias = None if bias is None else bias.detach().to(dtype, copy=True)

    def __call__(self, input: Tensor) -> Tensor:
        """Return the product in the dtype of the input."""
        x = input.to(self.dtype)
        return torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "").to(input.dtype)


class PackedWeights:
    """Packed copies of layers' weights, kept by what searches with a model again and again, such as a pipeline.

    A copy is used again while the parameters of its layer are the same memory in the same version, as PyTorch counts
    in-place operations, and `_SAMPLES` values of each, evenly spread, are the same. So a change is missed only where it
    is written past PyTorch's count, through `.data` or NumPy, to values between those. Copies are dropped with their
    layers; pickles and copies of this object are empty. Several threads may use it at the same time.

    min_numel: weights from which a layer is packed, MIN_NUMEL by default.
    """

    def __init__(self, min_numel: int | None = None) -> None:
        self.min_numel = MIN_NUMEL if min_numel is None else min_numel
        self._copies: WeakKeyDictionary[nn.Module, _Copy] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[PackedWeights], tuple[int]]:
        return PackedWeights, (self.min_numel,)

    def of(self, layer: nn.Linear | SplitLinear, dtype: torch.dtype) -> Sequence[LinearMap]:
        """Return the products with the packed weights of a layer."""
        with self._lock:
            parameters = _parameters(layer)
            known = self._copies.get(layer)
            if known is None or known.dtype != dtype or not known.is_of(parameters):
                parts = layer.parts() if isinstance(layer, SplitLinear) else [(layer.weight, layer.bias)]
                products = [_Product(weight, bias, dtype) for weight, bias in parts]
                known = self._copies[layer] = _Copy(products, dtype, [_Fingerprint(part) for part in parameters])
            return known.products


@dataclass(frozen=True)
class _Copy:
    """The packed weights of a layer, and what its parameters were."""

    products: Sequence[LinearMap]
    dtype: torch.dtype
    fingerprints: Sequence[_Fingerprint]

    def is_of(self, parameters: Sequence[Tensor]) -> bool:
        pairs = zip(self.fingerprints, parameters, strict=False)
        return len(self.fingerprints) == len(parameters) and all(known.is_of(part) for known, part in pairs)


class _Fingerprint:
    """Memory, version and some values of a tensor."""

    def __init__(self, tensor: Tensor) -> None:
        self.place, self.values = _place(tensor), _sample(tensor).clone()

    def is_of(self, tensor: Tensor) -> bool:
        return self.place == _place(tensor) and torch.equal(self.values, _sample(tensor))


def _place(tensor: Tensor) -> tuple[int, int]:
    return tensor.data_ptr(), 0 if tensor.is_inference() else tensor._version


def _sample(tensor: Tensor) -> Tensor:
    return tensor.detach().reshape(-1)[:: max(1, tensor.numel() // _SAMPLES)]


def packed(model: M, weights: PackedWeights | None = None, dtype: torch.dtype = torch.float32) -> M:
    """Return a view of a model that multiplies by packed copies of its large float32 layers on the CPU.

    The view has the modules' classes and attributes, and the parameters and buffers themselves, so that state dict,
    copies, pickles and hooks are those of the model. With gradients, in `torch.export` and in `torch.compile` it
    computes with the parameters. It is meant for one search: what is set on the model later it does not see, and
    weights must not change while it computes. A model without such layers is returned itself.

    weights: keeps the copies for further calls; by default they are dropped with the view. dtype: of the copies; with
    bfloat16 each product is rounded once, and all other operations are computed in float32, as is the layer of the
    logits, whose rounding would change one caption in twelve.
    """
    weights = PackedWeights() if weights is None else weights
    views: dict[nn.Module, nn.Module] = {}
    view = _view(model, "", weights, dtype, views)
    for changed in (changed for module, changed in views.items() if changed is not module):
        for name, value in vars(changed).items():
            if isinstance(value, list | tuple) and any(isinstance(part, nn.Module) for part in value):
                vars(changed)[name] = type(value)(views.get(part, part) for part in value)
    return cast(M, view)


def _view(
    module: nn.Module,
    name: str,
    weights: PackedWeights,
    dtype: torch.dtype,
    views: dict[nn.Module, nn.Module],
) -> nn.Module:
    """Return the view of a module, which is the module itself where nothing in it is packed, and add it to `views`."""
    if module in views:
        return views[module]
    views[module] = module  # nothing in a layer is packed by itself
    kind = torch.float32 if name.endswith("decoder.output") else dtype
    if isinstance(module, nn.Linear | SplitLinear):
        if not _can_pack(module, kind, weights.min_numel):
            return module
        view = object.__new__(_PackedLinear if type(module) is nn.Linear else type(module))
        vars(view).update(vars(module), packed=weights.of(module, kind))
    else:
        if not (parts := module._modules):
            return module
        inner = {key: part and _view(part, f"{name}.{key}", weights, dtype, views) for key, part in parts.items()}
        if all(inner[key] is part for key, part in parts.items()):
            return module
        view = object.__new__(type(module))
        vars(view).update(vars(module), _modules=inner)
    views[module] = view
    return view


def _can_pack(module: nn.Linear | SplitLinear, dtype: torch.dtype, min_numel: int) -> bool:
    """Return whether a layer is large and has float32 weights on the CPU that this build of PyTorch packs.

    Builds without MKL have fast float32 products of their own; those without oneDNN cannot pack.
    """
    if type(module) not in (nn.Linear, _PackedLinear) and not isinstance(module, SplitLinear):
        return False
    if vars(module).get("packed") is not None or module._forward_pre_hooks:  # which may compute the weight
        return False
    parameters = _parameters(module)
    return (
        sum(parameter.numel() for parameter in parameters) >= min_numel
        and {(parameter.dtype, parameter.device.type) for parameter in parameters} == {(torch.float32, "cpu")}
        and torch.backends.mkldnn.is_available()
        and (dtype != torch.float32 or torch.backends.mkl.is_available())
    )


def _parameters(layer: nn.Linear | SplitLinear) -> list[Tensor]:
    """Return the parameters of a layer; those of linear layers without the recursion, which takes longer."""
    own = layer._parameters.values() if isinstance(layer, nn.Linear) else layer.parameters()
    return [parameter for parameter in own if parameter is not None]


def _needs_parameters() -> bool:
    """Return whether products are to be differentiated or traced."""
    return torch.is_grad_enabled() or torch.compiler.is_compiling()
