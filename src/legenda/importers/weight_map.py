"""Tensors under their released names, loaded into the parameters of a Legenda model."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import TypeVar

import torch
from torch import Tensor

from legenda.errors import CheckpointError
from legenda.models.base import Model

_Kind = TypeVar("_Kind", bound=Model)

ReleasedName = str | tuple[str, slice]
"""The released name of a module or parameter, or that and the part of the first axis of its tensors."""

HEADS = 8
"""The number of attention heads of every released model."""

_PREFIX = "module."
"""The prefix that torch.nn.DataParallel adds to every name."""


class StateDictMapper:
    """The tensors of a released checkpoint, which become the parameters and buffers of a model.

    Read sizes from the shapes, and then `load_into` the model created for these sizes. Errors name missing, unexpected
    and misshapen tensors by their released names (source keys).

    source_keys: the source key of every parameter and buffer that was loaded.
    """

    def __init__(self, tensors: Mapping[str, Tensor], source: str) -> None:
        self.source = source
        prefixed = bool(tensors) and all(name.startswith(_PREFIX) for name in tensors)
        self.tensors = {name.removeprefix(_PREFIX) if prefixed else name: value for name, value in tensors.items()}
        self.source_keys: dict[str, str] = {}
        self._ignored: set[str] = set()

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
        numbers = {int(match[1]) for name in self.tensors if (match := _pattern(pattern).match(name))}
        if numbers and numbers != set(range(len(numbers))):
            gap = min(set(range(max(numbers))) - numbers)
            raise CheckpointError(f"{self.source} lacks the tensors that begin with {pattern.format(gap)}")
        return len(numbers)

    def ignore(self, *names: str) -> None:
        """Skip tensors that the model does not need, where they are present."""
        self._ignored.update(names)

    def load_into(self, model: _Kind, names: Mapping[str, ReleasedName]) -> _Kind:
        """Load all tensors into the model, convert it to their precision, and set evaluation mode.

        names: the released name of each module or parameter by its name in the model, as `read_names` returns them.
        Raise CheckpointError for a tensor that is missing, is not in the model or has another shape.
        """
        patterns = {_pattern(target, r"(?=\.|$)"): name for target, name in names.items()}
        expected = model.state_dict()
        values: dict[str, Tensor] = {}
        for target_key in expected:
            matches = ((pattern.match(target_key), name) for pattern, name in patterns.items())
            match, name = next(((match, name) for match, name in matches if match), (None, ""))
            if match is None:
                raise CheckpointError(f"{self.source} has no {target_key}, which {model.name} has with these options")
            released, part = (name, slice(None)) if isinstance(name, str) else name
            source_key = _fill(released, match.groups()) + target_key[match.end() :]
            self.source_keys[target_key] = source_key
            values[target_key] = self[source_key][part] if self[source_key].dim() else self[source_key]
        if extra := sorted(self.tensors.keys() - self._ignored - {*self.source_keys.values()}):
            more = f" and {len(extra) - 1} more" if len(extra) > 1 else ""
            raise CheckpointError(f"{self.source} holds {extra[0]}{more}, which {model.name} does not have")
        for target_key, value in values.items():
            if value.shape != expected[target_key].shape:
                source_key = self.source_keys[target_key]
                raise CheckpointError(
                    f"{self.source} holds {source_key} with shape {tuple(self.tensors[source_key].shape)}, which does "
                    f"not fit its other tensors: {tuple(expected[target_key].shape)} was expected"
                )
            if value.is_complex() or not torch.isfinite(value).all():
                source_key = self.source_keys[target_key]
                raise CheckpointError(f"{self.source} holds {source_key} with complex, NaN or infinite values")
        floating = [value.dtype for value in values.values() if value.is_floating_point()]
        model.to(torch.float64 if torch.float64 in floating else torch.float32)
        model.load_state_dict(values)
        return model.eval()


def read_names(release: str) -> dict[str, ReleasedName]:
    """Return the released name of each module or parameter of a release, by its name in the model."""
    return tomllib.loads(files("legenda.importers").joinpath("names.toml").read_text(encoding="utf-8"))[release]


def _pattern(name: str, end: str = "") -> re.Pattern[str]:
    """Return the regular expression of names that begin with `name`, in which "{}" is a number."""
    return re.compile(re.escape(name).replace(r"\{\}", r"(\d+)") + end)


def _fill(released: str, numbers: Sequence[str]) -> str:
    """Return a released name with the `numbers` of the model's name, as names.toml describes it."""
    following = iter(numbers)

    def number(match: re.Match[str]) -> str:
        factor, offset = match.groups()
        return str(int(factor or 1) * int(next(following)) + int(offset or 0))

    return re.sub(r"\{(?:(\d+)n\+(\d+))?\}", number, released)
