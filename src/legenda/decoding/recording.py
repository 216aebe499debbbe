"""A decoder's step recorded once and replayed for every word, so that a GPU never waits for Python (CUDA graphs)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache
from threading import Lock
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from legenda.decoding.decoder import State
from legenda.regions import Memory

Follow = Callable[[Tensor, State, Memory], tuple[Tensor, State]]
"""Log-probabilities of the words after `tokens`, and the state that follows."""

_KEPT = 4
"""Recordings of one decoder: of whole batches and a last one, of greedy decoding and of beams."""


class Recording:
    """A step whose tensors stay where they are: what it reads is copied there, and what it says stands there.

    A decoder's step is some hundred short kernels, each of which Python would launch by itself; a graph of all of them
    is launched at once. That needs shapes and places that never change, so the state must be one of
    `start_with_room`. On other devices the step is run as it is, at the same places. While a graph is recorded, no
    other thread may wait for the device as a whole, or draw from its default generator.
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
        if replays(tokens.device):
            self._record(follow)

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

    def _record(self, follow: Follow) -> None:
        device = self.tokens.device
        # One graph at a time, as torch has it; and casts of the weights must not be freed with the caller's block.
        with _recording, _autocast_without_cache():
            stream = _stream(device)
            stream.wait_stream(torch.cuda.current_stream(device))
            # libraries make room for themselves at their first call, which shall not be seen in what is drawn later
            with torch.random.fork_rng([device] if device.type == "cuda" else []), torch.cuda.stream(stream):
                self._once(follow)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
                self._once(follow)
            torch.cuda.current_stream(device).wait_stream(stream)
        self.graph = graph


_recording = Lock()


@cache
def _stream(device: torch.device) -> Any:
    """The one that all graphs of a device are recorded on, for each has a workspace of its own."""
    return torch.cuda.Stream(device)


def replays(device: torch.device) -> bool:
    """Whether the device can replay a graph of its work."""
    return device.type == "cuda"


def _autocast_without_cache() -> AbstractContextManager[Any]:
    if not torch.is_autocast_enabled("cuda"):
        return nullcontext()
    return torch.autocast("cuda", torch.get_autocast_dtype("cuda"), cache_enabled=False)


class Key(NamedTuple):
    """All that a recording depends on: where the weights lie, and everything else."""

    weights: Hashable
    others: Hashable


@dataclass
class _Shelf:
    """The recordings of one decoder, those used last at the end, and the keys that came last."""

    recordings: list[tuple[Key, Recording]] = field(default_factory=list)
    seen: deque[Key] = field(default_factory=lambda: deque(maxlen=4 * _KEPT))


_shelves: WeakKeyDictionary[nn.Module, _Shelf] = WeakKeyDictionary()
_lock = Lock()


def take(decoder: nn.Module, key: Key) -> tuple[Recording | None, bool]:
    """A recording of this key that no other search has, if there is one, and whether the key has come before.

    `put_back` when done. Recordings of weights that lie elsewhere by now are dropped.
    """
    with _lock:
        shelf = _shelves.setdefault(decoder, _Shelf())
        known = key in shelf.seen
        if not known:
            shelf.seen.append(key)
        shelf.recordings = [kept for kept in shelf.recordings if kept[0].weights == key.weights]
        at = next((at for at, (other, _) in enumerate(shelf.recordings) if other == key), None)
        return None if at is None else shelf.recordings.pop(at)[1], known


def put_back(decoder: nn.Module, key: Key, recording: Recording) -> None:
    """Keeps a recording for the next search; those that were not used for longest go."""
    with _lock:
        recordings = _shelves.setdefault(decoder, _Shelf()).recordings
        recordings.append((key, recording))
        del recordings[:-_KEPT]


def key_of(decoder: nn.Module, said: Hashable, tokens: Tensor, *parts: Any) -> Key:
    """The key of steps after such tokens with such tensors in `parts`; said: what else is part of them."""
    weights = tuple((tensor.data_ptr(), tensor.dtype) for tensor in (*decoder.parameters(), *decoder.buffers()))
    shapes = tuple((tensor.shape, tensor.dtype) for part in (tokens, *parts) for tensor in _tensors(part))
    device = tokens.device
    # what one stream computes with a recording, another must not begin anew
    place = device, torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else None
    autocast = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")
    modes = tuple(module.training for module in decoder.modules()), torch.is_inference_mode_enabled()
    return Key(weights, (said, shapes, place, autocast, modes))


def _tensors(tree: Any) -> Iterator[Tensor]:
    """All tensors of dataclasses and tuples, in order; TypeError for what a recording cannot hold."""
    if isinstance(tree, Tensor):
        yield tree
    elif tree is not None:
        for part in _parts(tree):
            yield from _tensors(part)


def _copied(tree: Any) -> Any:
    """The same with tensors of its own."""
    if isinstance(tree, Tensor):
        return tree.clone(memory_format=torch.contiguous_format)
    if tree is None:
        return None
    parts = [_copied(part) for part in _parts(tree)]
    return tuple(parts) if isinstance(tree, tuple) else replace(tree, **dict(zip(_names(tree), parts, strict=True)))


def _parts(tree: Any) -> tuple[Any, ...]:
    if type(tree) is tuple:
        return tree
    if not is_dataclass(tree):
        raise TypeError(f"a state or memory that is recorded holds tensors in tuples and dataclasses, no {type(tree)}")
    return tuple(getattr(tree, name) for name in _names(tree))


def _names(tree: Any) -> list[str]:
    return [field.name for field in fields(tree)]


def _copy(source: Any, target: Any) -> None:
    for one, other in zip(_tensors(source), _tensors(target), strict=True):
        other.copy_(one)
