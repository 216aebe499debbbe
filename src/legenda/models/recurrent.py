"""Decoders with an LSTM: a loop over the positions, which rows leave where they end."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from legenda.decoding.generation import Decoder, RowState
from legenda.models.packing import LinearMap
from legenda.regions import Memory

S = TypeVar("S", bound=RowState)


class RecurrentDecoder(Decoder[S]):
    """Base class of recurrent decoders; the part of the words in the first LSTM's gates is computed apart."""

    supports_static_state = True

    def maps(self) -> tuple[Sequence[LinearMap], Sequence[LinearMap]]:
        """Return the linear maps that a pass applies once, of words first, and those that it applies in every step."""
        raise NotImplementedError

    def start(self, memory: Memory, num_rows: int, once: Sequence[LinearMap]) -> S:
        """Return the state of empty rows; once: the first maps of `maps`."""
        raise NotImplementedError

    def embed(self, tokens: Int[Tensor, "*rows"]) -> Float[Tensor, "*rows D"]:
        """Return the embeddings of words as input of the first LSTM."""
        raise NotImplementedError

    def recur(
        self,
        gates: Float[Tensor, "B K gates"],
        state: S,
        memory: Memory,
        maps: Sequence[LinearMap],
        *,
        need_weights: bool,
    ) -> S:
        """Return the state after one position of all rows.

        gates: the part of the first LSTM's gates that the words contribute. maps: the second maps of `maps`.
        """
        raise NotImplementedError

    def read(self, state: S) -> Float[Tensor, "B K D"]:
        """Return the part of a state that the output layer reads."""
        raise NotImplementedError

    def logits(self, x: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows V"]:
        """Return the logits of what `read` returns."""
        raise NotImplementedError

    def init_state(self, memory: Memory, num_rows: int) -> S:
        """Return the state of `num_rows` empty rows per image."""
        return self.start(memory, num_rows, self.maps()[0])

    def step(self, tokens: Int[Tensor, "B K"], state: S, memory: Memory) -> tuple[Float[Tensor, "B K V"], S]:
        """Decode one token of each row."""
        (words, *_), maps = self.maps()
        state = self.recur(words(self.embed(tokens)), state, memory, maps, need_weights=True)
        return self.logits(self.read(state)), state

    def forward(
        self, tokens: Int[Tensor, "B K T"], memory: Memory, real: Bool[Tensor, "B K T"] | None = None
    ) -> Float[Tensor, "*positions V"]:
        """Decode token by token; embeddings and output layer are computed for all positions at once."""
        rows, (once, maps) = _EndingRows(tokens.shape, real), self.maps()
        if real is not None:
            memory = memory[rows.images]
            maps = [_LoopMap.of(part, [images * rows for images, rows in rows.sizes]) for part in maps]
        state = self.start(memory, tokens.shape[1], once)
        outputs = []
        for gates, size in rows.steps(once[0](self.embed(rows.pack(tokens)))):
            if size != (len(memory), self.read(state).shape[1]):
                memory, state = memory[: size[0]], state.first(*size)
            state = self.recur(gates, state, memory, maps, need_weights=False)
            outputs.append(self.read(state))
        return self.logits(rows.join(outputs))


def _has_hooks(layer: nn.Module) -> bool:
    hooks = (layer._forward_pre_hooks, layer._forward_hooks, layer._backward_pre_hooks, layer._backward_hooks)
    return any(map(len, hooks))


class _LoopMap:
    """A linear map in a loop whose weight gets its gradient in one product after all steps, not in one in each.

    What is added to the products carries the gradients of all steps back together: the bias, or zeros.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, rows: list[int]) -> None:
        """rows: of the input in each step."""
        self.weight, self.inputs = weight.detach(), []
        added = weight.new_zeros(len(weight)) if bias is None else bias
        self.added = iter(_Added.apply(weight, added, sum(rows), self.inputs).split(rows))

    @staticmethod
    def of(part: Any, rows: list[int]) -> LinearMap:
        """Return the map with its gradients at the end, where it is a plain product that is differentiated."""
        is_plain = isinstance(part, partial) or (type(part) is nn.Linear and not _has_hooks(part))
        if not is_plain or not torch.is_grad_enabled():
            return part
        weight, bias = part.keywords.values() if isinstance(part, partial) else (part.weight, part.bias)
        return _LoopMap(weight, bias, rows)

    def __call__(self, x: Float[Tensor, "B K I"]) -> Float[Tensor, "B K O"]:
        """Return the product of the next step."""
        x_rows = x.flatten(0, 1)
        self.inputs.append(x_rows.detach())
        return torch.addmm(next(self.added), x_rows, self.weight.t()).unflatten(0, x.shape[:2])


class _Added(torch.autograd.Function):
    """The addend of a `_LoopMap` for `count` rows; its gradient is that of the outputs, which gives the weight's."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, added: Tensor, count: int, inputs: list[Tensor]) -> Tensor:  # noqa: ARG004
        ctx.inputs = inputs
        return added.expand(count, -1)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, Tensor, None, None]:
        (gradient,) = grad_outputs
        inputs = torch.cat(ctx.inputs).to(gradient.dtype)
        return gradient.t() @ inputs, gradient.sum(dim=0), None, None


class _EndingRows:
    """Rows of different lengths, sorted so that at each position the first rows of the first images go on.

    Packed tensors hold these positions `(S, ...)`, one position of all rows after the other; rows of the images that go
    on are among them that have ended, but no image and no rank of rows of which all have.
    """

    def __init__(self, shape: torch.Size, real: Bool[Tensor, "B K T"] | None) -> None:
        """shape: of the tokens; real: True for tokens and False for padding, which follows; None where all are real."""
        self.shape = B, K, T = shape
        self.sizes = [(B, K)] * T
        self.real = real
        if real is None:
            return
        lengths, self.order = real.sum(dim=-1).sort(dim=1, descending=True, stable=True)
        self.images = lengths[:, 0].argsort(descending=True, stable=True)
        goes_on = lengths[self.images].unsqueeze(-1) > torch.arange(T, device=real.device)
        sizes = torch.stack([goes_on.any(dim=1).sum(dim=0), goes_on.sum(dim=1).amax(dim=0)], dim=1)
        self.sizes = [(images, rows) for images, rows in sizes.tolist() if rows] or [(0, 0)]
        self.starts = sizes.prod(dim=1).cumsum(dim=0) - sizes.prod(dim=1)
        self.widths = sizes[:, 1]

    def pack(self, tokens: Int[Tensor, "B K T"]) -> Int[Tensor, " S"]:
        """Return the tokens of all positions that are computed."""
        if self.real is not None:
            tokens = tokens.gather(1, self.order.unsqueeze(-1).expand_as(tokens))[self.images]
        return torch.cat([tokens[:images, :rows, t].flatten() for t, (images, rows) in enumerate(self.sizes)])

    def steps(self, x: Float[Tensor, "S D"]) -> list[tuple[Tensor, tuple[int, int]]]:
        """Return each position of the rows that go on, and the numbers of their images and of rows for each."""
        parts = x.split([images * rows for images, rows in self.sizes])
        return [(part.unflatten(0, size), size) for part, size in zip(parts, self.sizes, strict=True)]

    def join(self, steps: Sequence[Tensor]) -> Float[Tensor, "*positions D"]:
        """Return the positions of all steps as `(B, K, T, D)`, or the real ones `(P, D)`, row by row, of some."""
        if self.real is None:
            return torch.stack(list(steps), dim=2)
        image, row, position = self.real.nonzero(as_tuple=True)
        slots = self.starts[position] + self.images.argsort()[image] * self.widths[position]
        slots = slots + self.order.argsort(dim=1)[image, row]
        return torch.cat([step.flatten(0, 1) for step in steps]).index_select(0, slots)
