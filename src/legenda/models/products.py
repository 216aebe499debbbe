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

from legenda.attention.precision import product_dtype
from legenda.models.packing import RepeatedProduct


@contextmanager
def repeated_products(rows: int) -> Iterator[None]:
    """Around a loop over words: products are made for few rows, and a matrix gets its gradient in one product.

    A decoder whose words wait for each other multiplies the same matrices by few rows at every word. What goes back to
    a matrix is then a thin product each time, which reads and writes all of it; here gradients are kept until the last
    has come. Results are those of the same calls outside but for the order in which sums are rounded; gradients of
    gradients are refused, and no matrix may be changed in place inside. Under torch.compile nothing is done.

    rows: those of most inputs, for which matrices are laid out.
    """
    if torch.compiler.is_compiling():
        yield
    elif torch.is_grad_enabled():
        with _Products(rows):
            yield
    else:
        with _Searching(rows):
            yield


class _Searching(TorchFunctionMode):
    """Takes the place of `torch.nn.functional.linear` where nothing needs a gradient."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.rows = rows
        self.products: dict[Any, tuple[RepeatedProduct, Tensor]] = {}

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        if func is not F.linear or kwargs or args[0].device.type != "cpu":
            return func(*args, **(kwargs or {}))
        x, weight, *rest = args
        bias = rest[0] if rest else None
        dtype = product_dtype(weight)
        # by place, as parts of a matrix are taken anew at every word; it is kept, so that no other can come there
        key = weight.data_ptr(), weight.shape, weight.stride(), dtype
        if key not in self.products:
            self.products[key] = RepeatedProduct(weight.detach().to(dtype), self.rows), weight
        product, _ = self.products[key]
        with torch.autocast("cpu", enabled=False):
            found = product(x.flatten(0, -2).to(dtype), None if bias is None else bias.to(dtype))
        return found.view(*x.shape[:-1], len(weight))


class _Products(TorchFunctionMode):
    """Takes the place of `torch.nn.functional.linear` and gathers its calls by their weights."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.rows = rows
        self.gathered: dict[tuple[int, int], tuple[_Gathered, Tensor, tuple[Tensor, Tensor | None]]] = {}

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        if func is not F.linear or kwargs or not args[1].requires_grad:
            return func(*args, **(kwargs or {}))
        x, weight, *rest = args
        bias = rest[0] if rest else None
        key = id(weight), id(bias)
        if key not in self.gathered:
            gathered = _Gathered(weight, bias, self.rows)
            # both are kept, for as long as their ids are looked for
            self.gathered[key] = gathered, _Receive.apply(weight, bias, gathered), (weight, bias)
        gathered, token, _ = self.gathered[key]
        return _Apply.apply(x, token, gathered)


class _Gathered:
    """A weight and what its calls have seen: inputs and, on the way back, gradients by the number of the call."""

    def __init__(self, weight: Tensor, bias: Tensor | None, rows: int) -> None:
        dtype = product_dtype(weight)
        weight = weight.detach().to(dtype)
        self.bias = None if bias is None else bias.detach().to(dtype)
        self.multiply, self.multiply_back = RepeatedProduct(weight, rows), RepeatedProduct(weight.T, rows)
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
        rows = x.detach().flatten(0, -2).to(gathered.multiply.weight.dtype)
        ctx.gathered, ctx.call, ctx.kind, ctx.shape = gathered, len(gathered.inputs), x.dtype, x.shape
        gathered.inputs.append(rows)
        with torch.autocast(x.device.type, enabled=False):
            found = gathered.multiply(rows, gathered.bias)
        return found.view(*x.shape[:-1], found.shape[-1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:  # type: ignore[override]
        rows = gradient.flatten(0, -2)
        ctx.gathered.gradients[ctx.call] = rows
        back = ctx.gathered.multiply_back(rows).to(ctx.kind).view(ctx.shape)
        return back, gradient.new_zeros(()), None
