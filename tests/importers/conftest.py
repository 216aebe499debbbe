"""Numbers that the released codes computed, stored with the tests."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from legenda.models.xtransformer import positions

DATA = Path(__file__).parent / "data"


@dataclass(frozen=True)
class Numbers:
    """The arrays of one fixture: weights under `sd/`, inputs under `in/`, results under `out/` and so on."""

    arrays: dict[str, np.ndarray]

    def weights(self, prefix: str = "sd/", *, double: bool = False) -> dict[str, Tensor]:
        """The state dict, in float64 when asked for."""
        found = {name.removeprefix(prefix): self[name] for name in self.arrays if name.startswith(prefix)}
        return {
            name: value.double() if double and value.is_floating_point() else value for name, value in found.items()
        }

    def __getitem__(self, name: str) -> Tensor:
        return torch.from_numpy(self.arrays[name])


@pytest.fixture(scope="session")
def numbers():
    """`numbers("aoanet_full")`: the fixture of that name."""

    def read(name: str) -> Numbers:
        with np.load(DATA / f"{name}.npz", allow_pickle=False) as arrays:
            return Numbers({key: np.array(arrays[key]) for key in arrays.files})

    return read


@pytest.fixture(scope="session")
def to_length():
    """`to_length(x, T)`: the last axis filled up with zeros, as the releases fill their rows of tokens."""

    def fill(x: Tensor, T: int) -> Tensor:
        return torch.nn.functional.pad(x, (0, T - x.shape[-1]))

    return fill


@pytest.fixture(params=["xlan", "xtransformer"])
def kind(request):
    """The name of a model of X-LAN's release."""
    return request.param


@pytest.fixture(params=[torch.float32, torch.float64])
def number(request):
    """A precision."""
    return request.param


@pytest.fixture(scope="module")
def state(numbers):
    """`state("xlan")`: the released state dict; the table of positions is made here to keep the files small."""

    def read(kind: str, *, double: bool = False) -> dict[str, Tensor]:
        found = numbers(kind).weights(double=double)
        if kind == "xtransformer":
            found["decoder.embed_positions.pe"] = positions(0, 5000, 32, 10000.0, torch.device("cpu")).unsqueeze(0)
        return found

    return read
