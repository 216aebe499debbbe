"""Tensors under their released names, mapped one by one to the parameters of a Legenda model."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeVar

import torch
from torch import Tensor

from legenda.errors import CheckpointError
from legenda.models.model import Model

_Kind = TypeVar("_Kind", bound=Model)

HEADS = 8
"""The number of attention heads of every released model."""

_PREFIX = "module."
"""The prefix that torch.nn.DataParallel adds to every name."""


class StateDictMapper:
    """The tensors of a released checkpoint and the parameter or buffer that each of them becomes.

    Read sizes from the shapes, call `map` for every tensor, and then `load_into` with the model created for these
    sizes. Errors name missing, unexpected and misshapen tensors by their released names (source keys).
    """

    def __init__(self, tensors: Mapping[str, Tensor], source: str) -> None:
        self.source = source
        prefixed = bool(tensors) and all(name.startswith(_PREFIX) for name in tensors)
        self.tensors = {name.removeprefix(_PREFIX) if prefixed else name: value for name, value in tensors.items()}
        self._mapped: dict[str, tuple[str, Tensor]] = {}
        self._used: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self.tensors

    def __getitem__(self, name: str) -> Tensor:
        if name not in self.tensors:
            raise CheckpointError(f"{self.source} lacks {name}; give the complete state dict of the released model")
        return self.tensors[name]

    def size(self, name: str, axis: int = 0) -> int:
        """Return the length of one axis of a tensor."""
        shape = self[name].shape
        if len(shape) <= axis:
            raise CheckpointError(f"{self.source} holds {name} with shape {tuple(shape)}, which has no axis {axis}")
        return shape[axis]

    def count(self, pattern: str) -> int:
        """Return how many numbers "{}" matches in names that begin with `pattern`: 0, 1, 2 ... without a gap.

        `count("encoder.layers.{}.")` is the number of layers. Raise CheckpointError for a gap.
        """
        prefix = re.compile(re.escape(pattern).replace(r"\{\}", r"(\d+)"))
        found = {int(match[1]) for name in self.tensors if (match := prefix.match(name))}
        if found and found != set(range(len(found))):
            gap = min(set(range(max(found))) - found)
            raise CheckpointError(f"{self.source} lacks the tensors that begin with {pattern.format(gap)}")
        return len(found)

    def map(self, source_key: str, target_key: str, part: slice | None = None) -> None:
        """Map a tensor, or the slice `part` of its first axis, to the parameter or buffer `target_key`."""
        value = self[source_key]
        self._used.add(source_key)
        self._mapped[target_key] = (source_key, value if part is None else value[part])

    def map_module(self, source_key: str, target_key: str, part: slice | None = None) -> None:
        """Map the weight and the bias of a layer."""
        for name in ("weight", "bias"):
            self.map(f"{source_key}.{name}", f"{target_key}.{name}", part)

    def map_std_norm(self, source_key: str, target_key: str) -> None:
        """Map a layer normalization of AoANet or MCAN, whose weight and bias are called a_2 and b_2."""
        self.map(f"{source_key}.a_2", f"{target_key}.weight")
        self.map(f"{source_key}.b_2", f"{target_key}.bias")

    def ignore(self, *names: str) -> None:
        """Skip tensors that the model does not need, where they are present."""
        self._used.update(names)

    @property
    def source_keys(self) -> dict[str, str]:
        """The source key of every mapped tensor, by target key."""
        return {target_key: source_key for target_key, (source_key, _) in self._mapped.items()}

    def load_into(self, model: _Kind) -> _Kind:
        """Load all mapped tensors into the model, convert it to their precision, and set evaluation mode.

        Raise CheckpointError for a tensor that was not mapped, is not in the model or has another shape.
        """
        if extra := sorted(self.tensors.keys() - self._used):
            more = f" and {len(extra) - 1} more" if len(extra) > 1 else ""
            raise CheckpointError(f"{self.source} holds {extra[0]}{more}, which {model.name} does not have")
        expected = model.state_dict()
        for target_key, (source_key, value) in self._mapped.items():
            if target_key not in expected:
                raise CheckpointError(f"{self.source} holds {source_key}, which {model.name} does not have")
            if value.shape != expected[target_key].shape:
                raise CheckpointError(
                    f"{self.source} holds {source_key} with shape {tuple(self.tensors[source_key].shape)}, which does "
                    f"not fit its other tensors: {tuple(expected[target_key].shape)} was expected"
                )
        missing = sorted(expected.keys() - self._mapped.keys())
        assert not missing, f"the importer does not map {missing}"
        floating = [value.dtype for _, value in self._mapped.values() if value.is_floating_point()]
        model.to(torch.float64 if torch.float64 in floating else torch.float32)
        model.load_state_dict({target_key: value for target_key, (_, value) in self._mapped.items()})
        return model.eval()
