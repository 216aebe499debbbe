"""Decoders with an LSTM: a loop over the positions, which rows leave where they end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from legenda.decoding.generation import Decoder
from legenda.models.packing import LinearMap
from legenda.regions import Memory


class RecurrentDecoder(Decoder):
    """Base class of recurrent decoders, which add the part of the words to the gates of their first LSTM."""

    supports_static_state = True

    def maps(self) -> Sequence[LinearMap]:
        """Return the linear maps of the first LSTM, made once for all steps of a pass."""
        raise NotImplementedError

    def input_gates(self, tokens: Int[Tensor, "*rows"], maps: Any) -> Float[Tensor, "*rows gates"]:
        """Return what words add to the gates."""
        raise NotImplementedError

    def recur(
        self, gates: Float[Tensor, "B K gates"], state: Any, memory: Memory, maps: Any, *, need_weights: bool
    ) -> Any:
        """Return the state after one position of all rows."""
        raise NotImplementedError

    def read(self, state: Any) -> Float[Tensor, "B K D"]:
        """Return what the output layer reads of a state."""
        raise NotImplementedError

    def logits(self, x: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows V"]:
        """Return the logits of what `read` returns."""
        raise NotImplementedError

    def step(self, tokens: Int[Tensor, "B K"], state: Any, memory: Memory) -> tuple[Float[Tensor, "B K V"], Any]:
        """Decode one token of each row."""
        maps = self.maps()
        state = self.recur(self.input_gates(tokens, maps), state, memory, maps, need_weights=True)
        return self.logits(self.read(state)), state

    def forward(
        self, tokens: Int[Tensor, "B K T"], memory: Memory, real: Bool[Tensor, "B K T"] | None = None
    ) -> Float[Tensor, "*positions V"]:
        """Decode token by token; embeddings and output layer are computed for all positions at once."""
        rows, maps = EndingRows(tokens.shape, real), self.maps()
        if real is not None:
            memory = memory[rows.images]
        state: Any = self.init_state(memory, tokens.shape[1])
        outputs = []
        for gates, size in rows.steps(self.input_gates(rows.pack(tokens), maps)):
            if size != (len(memory), self.read(state).shape[1]):
                memory, state = memory[: size[0]], state.first(*size)
            state = self.recur(gates, state, memory, maps, need_weights=False)
            outputs.append(self.read(state))
        return self.logits(rows.join(outputs))


class EndingRows:
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
