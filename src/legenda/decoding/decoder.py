"""The interface of decoders: K rows of tokens for each image, and the state between steps with its caches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, ClassVar, Protocol, Self, TypeVar, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from legenda.regions import Memory


@runtime_checkable
class State(Protocol):
    """What a decoder keeps of its rows between two steps; modules hold none of it.

    attention: weights of the last step's cross-attention in the last layer `(B, K, H, N)`, or None before the first
    step.
    """

    @property
    def attention(self) -> Float[Tensor, "B K H N"] | None: ...

    def reorder(self, beams: Int[Tensor, "B W"]) -> Self:
        """Return the state of the rows `beams` of each image; W may differ from the present number of rows."""
        ...


class Decoder(nn.Module):
    """Map rows of tokens and the memory of their images to logits of the next token.

    The module holds no state, so several generations with one model can run at once.
    """

    uses_global_feature: bool = True
    """Whether it reads the memory's global feature."""

    supports_static_state: bool = False
    """Whether no step changes the shapes of a state of `init_state`; see `init_static_state`."""

    compiled_step: Callable[..., tuple[Tensor, Any]] | None = None
    """`step` after `compile_step`; generation calls it with states of `init_static_state`."""

    returns_log_probs: bool = False
    """Whether `step` returns log-probabilities, used as they are (ensembles), instead of logits."""

    def reset_parameters(self) -> None:
        """Initialize the parameters where PyTorch's defaults are not the model's; called once, after the encoder's."""

    def precompute_cross_kv(self, memory: Memory) -> Memory:
        """Return the memory with all that does not depend on the tokens, such as keys and values of cross-attention."""
        return memory

    def init_state(self, memory: Memory, num_rows: int) -> State:
        """Return the state of `num_rows` empty rows per image."""
        raise NotImplementedError

    def init_static_state(self, memory: Memory, num_rows: int, max_length: int) -> State | None:  # noqa: ARG002
        """Return the same state with capacity for `max_length` tokens (static cache); None where there is none.

        It is a dataclass of tensors, and of tuples and dataclasses of these. No step changes a shape or a dtype, except
        that the first one adds `attention`. So one compiled or exported step serves all positions.
        """
        return self.init_state(memory, num_rows) if self.supports_static_state else None

    def compile_step(self, **options: Any) -> None:
        """Compile `step` for generation by `torch.compile(**options)`, by default with mode="reduce-overhead".

        Copies and files of the module hold the step uncompiled.
        """
        self.compiled_step = torch.compile(self.step, **(options or {"mode": "reduce-overhead"}))

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "compiled_step": None}  # the compiled function has this module's weights

    def step(self, tokens: Int[Tensor, "B K"], state: Any, memory: Memory) -> tuple[Float[Tensor, "B K V"], State]:
        """Return the logits of the tokens after `tokens`, and the next state; `state` is one of this decoder's."""
        raise NotImplementedError

    def forward(self, tokens: Int[Tensor, "B K T"], memory: Memory) -> Float[Tensor, "B K T V"]:
        """Return the logits after every prefix of `tokens`: T steps, which a decoder may compute all at once."""
        state, logits = self.init_state(memory, tokens.shape[1]), []
        for position in tokens.unbind(dim=2):
            step, state = self.step(position, state, memory)
            logits.append(step)
        return torch.stack(logits, dim=2)


CacheLength = int | Tensor
"""Number of cached tokens: an int where the cache grows, a tensor `()` where it has a fixed capacity (static cache)."""


def gather_beams(x: Tensor, beams: Int[Tensor, "B W"]) -> Tensor:
    """Return the rows `beams` of each image of `x` `(B, K, ...)`."""
    image = torch.arange(len(beams), device=beams.device).unsqueeze(1)
    return x[image, beams]


_State = TypeVar("_State", bound="RowState")


class RowState:
    """Base class of decoder states: dataclasses of tensors `(B, K, ...)`, of tuples of these, and of None.

    shared: the names of the fields that all rows of an image share.
    """

    shared: ClassVar[tuple[str, ...]] = ()

    def reorder(self: _State, beams: Int[Tensor, "B W"]) -> _State:
        """Return the state of the rows `beams` of each image."""
        state: Any = self
        names = [field.name for field in fields(state) if field.name not in self.shared]
        return replace(state, **{name: _gather(getattr(state, name), beams) for name in names})


def _gather(value: Any, beams: Int[Tensor, "B W"]) -> Any:
    if isinstance(value, tuple):
        return tuple(_gather(part, beams) for part in value)
    return None if value is None else gather_beams(value, beams)


def append_kv(past: Tensor, current: Tensor, dim: int, length: CacheLength) -> Tensor:
    """Return the cache with one more token in dimension `dim`: appended, or written at `length` in a static cache."""
    if isinstance(length, int):
        return torch.cat([past, current], dim=dim)
    return past.index_copy(dim, length.view(1), current.to(past.dtype))


def empty_kv(
    memory: Memory, num_heads: int, num_rows: int, capacity: int, dtype: torch.dtype
) -> tuple[tuple[Tensor, Tensor], ...]:
    """Return keys and values of zeros `(B, K, H, capacity, d)` for each layer with cross-attention to the memory."""
    B, _, D = memory.states.shape
    zeros = memory.states.new_zeros(B, num_rows, num_heads, capacity, D // num_heads, dtype=dtype)
    return tuple((zeros, zeros) for _ in memory.cross_kv)
