"""Matrix products of loops over words, whose rows are few and whose matrices are the same at every word."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import Function, once_differentiable
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode


@contextmanager
def repeated_products() -> Iterator[None]:
    """Inside, the gradient of every weight of a linear map is one product over all its calls, not a sum of as many.

    A decoder whose words wait for each other multiplies the same matrices by few rows at every word. What goes back to
    a matrix is then a thin product each time, which reads and writes all of it; here gradients are kept until the last
    has come. Results are those of the same calls outside but for the order in which sums are rounded; gradients of
    gradients are refused. Under torch.compile, and where nothing needs a gradient, nothing is changed.
    """
    if not torch.is_grad_enabled() or torch.compiler.is_compiling():
        yield
        return
    with _Products():
        yield


@contextmanager
def thin_products() -> Iterator[None]:
    """Inside, linear maps of few rows are computed as W x^T, which CPUs' libraries do up to twice as fast as x W^T.

    Nothing is changed on other devices, under autocast, under torch.compile, or where gradients are wanted.
    """
    if torch.is_grad_enabled() or torch.is_autocast_enabled("cpu") or torch.compiler.is_compiling():
        yield
        return
    with _Thin():
        yield


_FEWEST, _MOST = 2, 40
"""Rows between which W x^T is the faster one (measured with MKL on AVX-512)."""
_KINDS = (torch.float32, torch.float64)


class _Thin(TorchFunctionMode):
    """Takes the place of `torch.nn.functional.linear` where its input has few rows."""

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        if func is not F.linear or kwargs:
            return func(*args, **(kwargs or {}))
        x, weight, *rest = args
        bias = rest[0] if rest else None
        rows = x.numel() // x.shape[-1]
        if not _FEWEST <= rows <= _MOST or x.device.type != "cpu" or x.dtype not in _KINDS:
            return func(x, weight, bias)
        columns = x.flatten(0, -2).T
        found = weight @ columns if bias is None else torch.addmm(bias[:, None], weight, columns)
        return found.T.contiguous().view(*x.shape[:-1], -1)


class _Products(TorchFunctionMode):
    """Takes the place of `torch.nn.functional.linear` and gathers its calls by their weights."""

    def __init__(self) -> None:
        super().__init__()
        self.gathered: dict[tuple[int, int], tuple[_Gathered, Tensor, tuple[Tensor, Tensor | None]]] = {}

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        if func is not F.linear or kwargs or not args[1].requires_grad:
            return func(*args, **(kwargs or {}))
        x, weight, *rest = args
        bias = rest[0] if rest else None
        key = id(weight), id(bias)
        if key not in self.gathered:
            gathered = _Gathered(weight, bias)
            # both are kept, for as long as their ids are looked for
            self.gathered[key] = gathered, _Receive.apply(weight, bias, gathered), (weight, bias)
        gathered, token, _ = self.gathered[key]
        return _Apply.apply(x, token, gathered)


class _Gathered:
    """A weight and what its calls have seen: inputs and, on the way back, gradients by the number of the call."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        device = weight.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight.dtype
        self.weight = weight.detach().to(dtype)
        self.bias = None if bias is None else bias.detach().to(dtype)
        self.inputs: list[Tensor] = []
        self.gradients: dict[int, Tensor] = {}


class _Receive(Function):
    """Makes a token that every call takes, so that this one's turn in the backward pass comes after all of theirs."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, bias: Tensor | None, gathered: _Gathered) -> Tensor:
        ctx.gathered, ctx.kinds = gathered, (weight.dtype, None if bias is None else bias.dtype)
        return weight.new_zeros(())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: Tensor) -> tuple[Tensor, Tensor | None, None]:  # type: ignore[override]
        gathered, (kind, bias_kind) = ctx.gathered, ctx.kinds
        calls = sorted(gathered.gradients)
        gradients = torch.cat([gathered.gradients[call] for call in calls])
        inputs = torch.cat([gathered.inputs[call] for call in calls])
        gathered.gradients.clear()
        return (gradients.T @ inputs).to(kind), None if bias_kind is None else gradients.sum(0).to(bias_kind), None


class _Apply(Function):
    """One call: the product, and on the way back the gradient of its input alone."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, _: Tensor, gathered: _Gathered) -> Tensor:
        rows = x.detach().flatten(0, -2).to(gathered.weight.dtype)
        ctx.gathered, ctx.call, ctx.kind, ctx.shape = gathered, len(gathered.inputs), x.dtype, x.shape
        gathered.inputs.append(rows)
        with torch.autocast(x.device.type, enabled=False):
            return F.linear(rows, gathered.weight, gathered.bias).view(*x.shape[:-1], -1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:  # type: ignore[override]
        rows = gradient.flatten(0, -2)
        ctx.gathered.gradients[ctx.call] = rows
        back = (rows @ ctx.gathered.weight).to(ctx.kind).view(ctx.shape)
        return back, gradient.new_zeros(()), None
