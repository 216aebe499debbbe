"""A decoder's step recorded once and replayed for every word, so that a GPU never waits for Python (CUDA graphs)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields, is_dataclass, replace
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from legenda.models.decoder import State
from legenda.regions import Memory

Follow = Callable[[Tensor, State, Memory], tuple[Tensor, State]]
"""Log-probabilities of the words after `tokens`, and the state that follows."""

_KEPT = 4
"""Recordings of one decoder: of whole batches and a last one, of greedy decoding and of beams."""


class Recording:
    """A step whose tensors stay where they are: what it reads is copied there, and what it says stands there.

    A decoder's step is some hundred short kernels, each of which Python would launch by itself; a graph of all of them
    is launched at once. That needs shapes and places that never change, so the state must be one of
    `start_with_room`. On other devices the step is run as it is, at the same places.
    """

    def __init__(
        self, follow: Follow, tokens: Int[Tensor, "B K"], state: State, memory: Memory, *, reorders: bool, kept: Any
    ) -> None:
        """Records `follow` with copies of what is given; kept: what must live as long as the graph.

        reorders: whether the rows of the state may change places before the step.
        """
        self.tokens, self.kept = tokens.clone(), kept
        self.own = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
        self.parents = self.own.clone() if reorders else None
        self.state, self.memory = _copied(state), _copied(memory)
        self.log_probs = torch.empty(0)
        self.graph = None
        if _is_recorded(tokens):
            self._record(follow, state)

    def load(self, state: State, memory: Memory) -> None:
        """Begins with this state and memory, which are copied."""
        _copy(state, self.state)
        _copy(memory, self.memory)

    def replay(
        self, follow: Follow, tokens: Int[Tensor, "B K"], parents: Int[Tensor, "B K"] | None
    ) -> Float[Tensor, "B K V"]:
        """What may follow `tokens` in the rows `parents` of the state, which it becomes; it stands until the next."""
        self.tokens.copy_(tokens)
        if self.parents is not None:
            self.parents.copy_(self.own if parents is None else parents)
        if self.graph is None:
            self._once(follow)
        else:
            self.graph.replay()
        return self.log_probs

    def _once(self, follow: Follow) -> None:
        state = self.state if self.parents is None else self.state.reorder(self.parents)
        self.log_probs, following = follow(self.tokens, state, self.memory)
        _copy(following, self.state)

    def _record(self, follow: Follow, state: State) -> None:
        stream = torch.cuda.Stream(self.tokens.device)
        stream.wait_stream(torch.cuda.current_stream(self.tokens.device))
        with _autocast_without_cache():  # whose casts of the weights would be freed with the caller's block
            with torch.cuda.stream(stream):
                self._once(follow)  # libraries make room for themselves at their first call
                _copy(state, self.state)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
                self._once(follow)
        torch.cuda.current_stream(self.tokens.device).wait_stream(stream)
        self.graph = graph


def _is_recorded(tokens: Tensor) -> bool:
    """Whether the device can replay a graph of its work."""
    return tokens.device.type == "cuda"


def _autocast_without_cache() -> AbstractContextManager[Any]:
    if not torch.is_autocast_enabled("cuda"):
        return nullcontext()
    return torch.autocast("cuda", torch.get_autocast_dtype("cuda"), cache_enabled=False)


_shelf: WeakKeyDictionary[nn.Module, list[tuple[Hashable, Recording]]] = WeakKeyDictionary()
_lock = Lock()


def taken(decoder: nn.Module, key: Hashable) -> Recording | None:
    """A recording of this key that no other search has, if there is one; `put_back` when done."""
    with _lock:
        kept = _shelf.get(decoder, [])
        at = next((at for at, (other, _) in enumerate(kept) if other == key), None)
        return None if at is None else kept.pop(at)[1]


def put_back(decoder: nn.Module, key: Hashable, recording: Recording) -> None:
    """Keeps a recording for the next search; those that were not used for longest go."""
    with _lock:
        kept = _shelf.setdefault(decoder, [])
        kept.append((key, recording))
        del kept[:-_KEPT]


def key_of(decoder: nn.Module, *parts: Any) -> Hashable:
    """All that a recording depends on: the places of the weights, shapes and kinds of tensors in `parts`, modes."""
    weights = tuple(tensor.data_ptr() for tensor in (*decoder.parameters(), *decoder.buffers()))
    shapes = tuple((tensor.shape, tensor.dtype, tensor.device) for part in parts for tensor in _tensors(part))
    autocast = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")
    return weights, shapes, autocast, decoder.training, torch.is_inference_mode_enabled()


def _tensors(tree: Any) -> Iterator[Tensor]:
    """All tensors of dataclasses and tuples, in order."""
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, tuple):
        for part in tree:
            yield from _tensors(part)
    elif is_dataclass(tree):
        for field in fields(tree):
            yield from _tensors(getattr(tree, field.name))


def _copied(tree: Any) -> Any:
    """The same with tensors of its own."""
    if isinstance(tree, Tensor):
        return tree.clone(memory_format=torch.contiguous_format)
    if isinstance(tree, tuple):
        return tuple(_copied(part) for part in tree)
    if is_dataclass(tree) and not isinstance(tree, type):
        return replace(tree, **{field.name: _copied(getattr(tree, field.name)) for field in fields(tree)})
    return tree


def _copy(source: Any, target: Any) -> None:
    for one, other in zip(_tensors(source), _tensors(target), strict=True):
        other.copy_(one)
