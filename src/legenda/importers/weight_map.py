"""Tensors under their released names, handed over one by one to a model of ours."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeVar

import torch
from torch import Tensor

from legenda.errors import UserError
from legenda.models.model import Model

_Kind = TypeVar("_Kind", bound=Model)

HEADS = 8
"""The heads of every released model."""

_WRAPPER = "module."
"""What torch's DataParallel puts before every name."""


class Translation:
    """The tensors of a released checkpoint, and under which of our names each of them goes.

    Sizes are read from the shapes first, then every tensor is handed over by `give`, and `fill` puts them into the
    model that was made for these sizes. Whatever is missing, left over or of the wrong shape is told by its released
    name.
    """

    def __init__(self, tensors: Mapping[str, Tensor], source: str) -> None:
        self.source = source
        wrapped = bool(tensors) and all(name.startswith(_WRAPPER) for name in tensors)
        self.tensors = {name.removeprefix(_WRAPPER) if wrapped else name: value for name, value in tensors.items()}
        self._given: dict[str, tuple[str, Tensor]] = {}
        self._used: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self.tensors

    def __getitem__(self, name: str) -> Tensor:
        if name not in self.tensors:
            raise UserError(f"{self.source} lacks {name}; give the whole state dict of the released model")
        return self.tensors[name]

    def size(self, name: str, axis: int = 0) -> int:
        """The length of one axis of a tensor."""
        shape = self[name].shape
        if len(shape) <= axis:
            raise UserError(f"{self.source} holds {name} with shape {tuple(shape)}, which has no axis {axis}")
        return shape[axis]

    def count(self, pattern: str) -> int:
        """How many numbers "{}" stands for in names that begin with `pattern`: 0, 1, 2 ... without a gap.

        `count("encoder.layers.{}.")` is the number of layers. Raises UserError for a gap.
        """
        begin = re.compile(re.escape(pattern).replace(r"\{\}", r"(\d+)"))
        found = {int(match[1]) for name in self.tensors if (match := begin.match(name))}
        if found and found != set(range(len(found))):
            gap = min(set(range(max(found))) - found)
            raise UserError(f"{self.source} lacks the tensors that begin with {pattern.format(gap)}")
        return len(found)

    def give(self, theirs: str, ours: str, part: slice | None = None) -> None:
        """Hands a tensor, or the rows `part` of it, over to the parameter or buffer `ours`."""
        value = self[theirs]
        self._used.add(theirs)
        self._given[ours] = (theirs, value if part is None else value[part])

    def give_module(self, theirs: str, ours: str, part: slice | None = None) -> None:
        """Hands over the weight and the bias of a layer."""
        for name in ("weight", "bias"):
            self.give(f"{theirs}.{name}", f"{ours}.{name}", part)

    def give_std_norm(self, theirs: str, ours: str) -> None:
        """Hands over a normalisation of the kind that AoANet and MCAN have, by its own names."""
        self.give(f"{theirs}.a_2", f"{ours}.weight")
        self.give(f"{theirs}.b_2", f"{ours}.bias")

    def ignore(self, *names: str) -> None:
        """Passes over tensors that a model does not need, where they are there."""
        self._used.update(names)

    @property
    def origins(self) -> dict[str, str]:
        """The released name of everything that was given, by our name."""
        return {ours: theirs for ours, (theirs, _) in self._given.items()}

    def fill(self, model: _Kind) -> _Kind:
        """Puts everything that was given into the model, which takes the precision of the tensors."""
        if extra := sorted(self.tensors.keys() - self._used):
            more = f" and {len(extra) - 1} more" if len(extra) > 1 else ""
            raise UserError(f"{self.source} holds {extra[0]}{more}, which {model.name} has no place for")
        own = model.state_dict()
        for ours, (theirs, value) in self._given.items():
            if ours not in own:
                raise UserError(f"{self.source} holds {theirs}, which {model.name} has no place for")
            if value.shape != own[ours].shape:
                raise UserError(
                    f"{self.source} holds {theirs} with shape {tuple(self.tensors[theirs].shape)}, which does not fit "
                    f"its other tensors: {tuple(own[ours].shape)} was expected"
                )
        lacking = sorted(own.keys() - self._given.keys())
        assert not lacking, f"the importer forgets {lacking}"
        floating = [value.dtype for _, value in self._given.values() if value.is_floating_point()]
        model.to(torch.float64 if torch.float64 in floating else torch.float32)
        model.load_state_dict({ours: value for ours, (_, value) in self._given.items()})
        return model.eval()
