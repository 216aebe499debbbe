"""Parts shared by all searches: the interface of models and decoders, the output, and a step of all rows at once.

A decoder has K rows of tokens for each image, and a state between steps with its caches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from legenda.errors import ConfigError
from legenda.regions import Memory, Regions, at_least_float32
from legenda.runtime.search import SearchOutput, Stepper
from legenda.runtime.settings import GenerationConfig, Overrides


@runtime_checkable
class State(Protocol):
    """The state of a decoder's rows between two steps; modules hold none of it.

    attention: weights of the last step's cross-attention in the last layer `(B, K, H, N)`, or None before the first
    step.
    """

    @property
    def attention(self) -> Float[Tensor, "B K H N"] | None: ...

    def reorder(self, beams: Int[Tensor, "B W"]) -> State:
        """Return the state of the rows `beams` of each image; W may differ from the present number of rows."""
        ...


S = TypeVar("S", bound=State)


class Decoder(nn.Module, Generic[S]):
    """Map rows of tokens and the memory of their images to logits of the next token.

    The module holds no state, so several generations with one model can run at once.
    """

    uses_global_feature: bool = True
    """Whether it reads the memory's global feature."""

    supports_static_state: bool = False
    """Whether no step changes the shapes of a state of `init_state`; see `init_static_state`."""

    compiled_step: Callable[..., tuple[Tensor, S]] | None = None
    """`step` after `compile_step`; generation calls it with states of `init_static_state`."""

    returns_log_probs: bool = False
    """Whether `step` returns log-probabilities, used as they are (ensembles), instead of logits."""

    def reset_parameters(self) -> None:
        """Initialize the parameters where PyTorch's defaults are not the model's; called once, after the encoder's."""

    def precompute_cross_kv(self, memory: Memory) -> Memory:
        """Return the memory with all that does not depend on the tokens, such as keys and values of cross-attention."""
        return memory

    def init_state(self, memory: Memory, num_rows: int) -> S:
        """Return the state of `num_rows` empty rows per image."""
        raise NotImplementedError

    def init_static_state(self, memory: Memory, num_rows: int, max_length: int) -> S | None:  # noqa: ARG002
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

    def __getstate__(self) -> dict[str, object]:
        return {**super().__getstate__(), "compiled_step": None}  # the compiled function has this module's weights

    def step(self, tokens: Int[Tensor, "B K"], state: S, memory: Memory) -> tuple[Float[Tensor, "B K V"], S]:
        """Return the logits of the tokens after `tokens`, and the next state."""
        raise NotImplementedError

    def forward(
        self, tokens: Int[Tensor, "B K T"], memory: Memory, real: Bool[Tensor, "B K T"] | None = None
    ) -> Float[Tensor, "*positions V"]:
        """Return the logits after every prefix of `tokens`: T steps, which a decoder may compute all at once.

        With `real`, which is False for the padding at the end of rows, the logits are those of the real positions
        alone, `(P, V)`, row by row, and a decoder may compute no others.
        """
        state, logits = self.init_state(memory, tokens.shape[1]), []
        for position in tokens.unbind(dim=2):
            step, state = self.step(position, state, memory)
            logits.append(step)
        stacked = torch.stack(logits, dim=2)
        return stacked if real is None else stacked[real]


CacheLength = int | Tensor
"""Number of cached tokens: an int where the cache grows, a tensor `()` where it has a fixed capacity (static cache)."""


_State = TypeVar("_State", bound="RowState")


@dataclass(frozen=True, eq=False)
class RowState(State):
    """Base class of decoder states: dataclasses of tensors `(B, K, ...)`, of tuples of these, and of None.

    shared: the names of the fields that all rows of an image share.
    """

    shared: ClassVar[tuple[str, ...]] = ()

    def reorder(self: _State, beams: Int[Tensor, "B W"]) -> _State:
        """Return the state of the rows `beams` of each image."""
        names = [field.name for field in fields(self) if field.name not in self.shared]
        return replace(self, **{name: _gather(getattr(self, name), beams) for name in names})

    def first(self: _State, images: int, rows: int) -> _State:
        """Return the state of the first rows of each of the first images."""
        names = [field.name for field in fields(self)]
        sizes = {name: (images,) if name in self.shared else (images, rows) for name in names}
        return replace(self, **{name: _slice(getattr(self, name), size) for name, size in sizes.items()})


def _slice(value: Any, size: tuple[int, ...]) -> Any:
    if isinstance(value, tuple):
        return tuple(_slice(part, size) for part in value)
    return None if value is None else value[tuple(slice(count) for count in size)].contiguous()


def _gather(value: Any, beams: Int[Tensor, "B W"]) -> Any:
    if isinstance(value, tuple):
        return tuple(_gather(part, beams) for part in value)
    return None if value is None else value[torch.arange(len(beams), device=beams.device).unsqueeze(1), beams]


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


class _HasAttributes(type(Protocol)):  # type: ignore[invalid-inheritance]
    """Check instances with `hasattr`: since Python 3.12 protocols do not find the submodules of an `nn.Module`."""

    def __instancecheck__(cls, instance: object) -> bool:
        return all(hasattr(instance, name) for name in ("decoder", "generation_config", "encode"))


@runtime_checkable
class SupportsGeneration(Protocol, metaclass=_HasAttributes):
    """The interface that generation needs: an encoder, a decoder and a default configuration."""

    @property
    def decoder(self) -> Decoder: ...

    @property
    def generation_config(self) -> GenerationConfig: ...

    def encode(self, source: Any, /) -> Memory: ...


@dataclass(frozen=True, eq=False)
class GenerationOutput:
    """K generated sequences for each of B images; those of beam search are sorted by score, best first.

    tokens: ids up to eos, then padding.
    log_probs: log-probability of each token under the model, 0 after eos.
    scores: what beam search ranks by: the sum of log_probs, normalized by length where length_penalty is above 0. Where
    fewer than K hypotheses exist, the rows after them have score -inf and hold eos and padding only; where fewer than K
    slots could be filled at all, K is smaller than was asked for.
    attention: cross-attention weights of the step that chose each token, 0 after eos; None unless requested.
    """

    tokens: Int[Tensor, "B K T"]
    log_probs: Float[Tensor, "B K T"]
    scores: Float[Tensor, "B K"]
    attention: Float[Tensor, "B K T H N"] | None = None

    @staticmethod
    def from_numpy(output: SearchOutput, device: torch.device) -> GenerationOutput:
        """Return the output of a search as tensors on a device."""
        values: Any = (None if x is None else torch.from_numpy(x).to(device) for x in vars(output).values())
        return GenerationOutput(*values)


@runtime_checkable
class SearchesItself(Protocol):
    """A model with a search of its own: one of transformers, or an exported one."""

    def generate(
        self,
        inputs: Any,
        config: GenerationConfig,
        num_captions: int,
        names: Sequence[str] | None = None,
        *,
        need_attention: bool = False,
    ) -> GenerationOutput:
        """Return `num_captions` sequences of each image; see `legenda.decoding.search.search`."""
        ...


def resolve_config(
    model: SupportsGeneration, generation_config: GenerationConfig | None, overrides: Overrides
) -> GenerationConfig:
    """Return the call's configuration, or else the model's, with the call's fields that are not None over it.

    Raise ConfigError for words, which `legenda.runtime.settings.override` makes tokens of.
    """
    config = model.generation_config if generation_config is None else generation_config
    if changes := {name: value for name, value in overrides.items() if value is not None}:
        config = config.replace(**changes)
    if config.must or config.forbidden_last_words:
        raise ConfigError("words of a search need a vocabulary; give required_tokens or forbidden_last_tokens instead")
    return config


def encode_inputs(model: SupportsGeneration, inputs: Regions | Memory | Tensor) -> Memory:
    """Return the memory of regions, which are encoded, or a memory as it is."""
    return inputs if isinstance(inputs, Memory) else model.encode(inputs)


def to_numpy(values: Tensor) -> np.ndarray:
    """Return a tensor as an array; half precision, of which NumPy has not all, becomes float32."""
    return (values.float() if values.dtype in (torch.bfloat16, torch.float16) else values).detach().cpu().numpy()


class TorchStepper(Stepper[Tensor]):
    """Step a decoder of PyTorch; see `Stepper`.

    Raise ConfigError where the decoder's step is compiled but it has no state of fixed size.
    """

    def __init__(
        self,
        decoder: Decoder,
        memory: Memory,
        num_rows: int,
        config: GenerationConfig,
        *,
        beam: bool,
        need_attention: bool,
    ) -> None:
        self.decoder, self.memory, self.device = decoder, memory, memory.mask.device
        super().__init__((len(memory), num_rows), config, beam=beam)
        self._need_attention = need_attention
        self.state = self._init_state(num_rows)

    def decode(
        self, tokens: np.ndarray, parents: np.ndarray | None
    ) -> tuple[Float[Tensor, "B K V"], Float[Tensor, "B K H N"] | None]:
        """Return the log-probabilities of the tokens after `tokens`, and the attention weights if they are needed."""
        state = self.state if parents is None else self.state.reorder(self.own(parents))
        logits, self.state = self._step(self.own(tokens), state)
        logits = at_least_float32(logits)
        log_probs = logits.clone() if self.decoder.returns_log_probs else logits.log_softmax(dim=-1)
        return log_probs, self.state.attention if self._need_attention else None

    def own(self, values: np.ndarray) -> Tensor:
        """Return values as a tensor on the device."""
        return torch.from_numpy(values).to(self.device)

    def to_numpy(self, values: Tensor) -> np.ndarray:
        """Return a tensor as an array."""
        return to_numpy(values)

    def normalize(self, scores: Float[Tensor, "B K V"]) -> Float[Tensor, "B K V"]:
        """Return scores as log-probabilities."""
        return scores.log_softmax(dim=-1)

    def pick(self, log_probs: Float[Tensor, "B K V"], tokens: np.ndarray) -> np.ndarray:
        """Return the log-probability of one token of each row."""
        return self.to_numpy(log_probs.gather(-1, self.own(tokens).unsqueeze(-1)).squeeze(-1))

    def top(
        self, log_probs: Float[Tensor, "B K V"], scores: Float[Tensor, "B K V"], count: int, allowed: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the tokens with the largest scores, their scores and log-probabilities."""
        if allowed is not None:
            scores = scores.masked_fill(~self.own(allowed), float("-inf"))
        values, tokens = scores.topk(min(count, scores.shape[-1]), dim=-1)
        best = self.to_numpy(values)
        chosen = best if scores is log_probs else self.to_numpy(log_probs.gather(-1, tokens))
        return self.to_numpy(tokens), best, chosen

    def _init_state(self, num_rows: int) -> State:
        if self.decoder.compiled_step is None:
            return self.decoder.init_state(self.memory, num_rows)
        state = self.decoder.init_static_state(self.memory, num_rows, self.config.max_length)
        if state is None:
            raise ConfigError(
                f"compiled decoding takes a state of fixed size, which this model does not have for "
                f"{self.config.max_length} tokens; shorten max_length or leave compile out"
            )
        return state

    def _step(self, tokens: Int[Tensor, "B K"], state: object) -> tuple[Float[Tensor, "B K V"], State]:
        if self.decoder.compiled_step is None:
            return self.decoder.step(tokens, state, self.memory)
        torch.compiler.cudagraph_mark_step_begin()
        # the next run of a CUDA graph overwrites its outputs
        return deepcopy(self.decoder.compiled_step(tokens, state, self.memory))
