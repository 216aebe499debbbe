"""The kinds of data that a recipe can name, and the splits of generated data."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Generic, Protocol, TypeVar

from legenda.config import Config, NonNegativeInt, PositiveInt, map_paths
from legenda.errors import CheckpointError, DataError, LegendaError
from legenda.features.readers import split_kind
from legenda.registry import Registry
from legenda.run_folder import CONFIG, RunConfig

__all__ = ["Data"]


class Split(Protocol):
    """The examples of a split, by position. source: what they are read from, for messages."""

    @property
    def ids(self) -> Sequence[str]:
        """The names of the examples, all different."""
        ...

    @property
    def source(self) -> str: ...

    def __len__(self) -> int: ...


S = TypeVar("S", bound=Split)
S_co = TypeVar("S_co", bound=Split, covariant=True)


class OpenedData(Protocol[S_co]):
    """A data set in use: its splits, and what else its task needs to create a model."""

    @property
    def train(self) -> S_co: ...

    @property
    def validation(self) -> S_co: ...


class Data(Config, Generic[S]):
    """The settings of a recipe's data, with splits of one class."""

    kind: str

    @abstractmethod
    def open(self, progress: Callable[[str], None]) -> OpenedData[S]:
        """Return what the recipe's task is created from; `progress` gets lines about the steps of loading."""

    @abstractmethod
    def split(self, name: str) -> S:
        """Return one split by its name: train, val or test."""


DATASETS: Registry[type[Data]] = Registry(
    "data set",
    {
        "scenes": "legenda.data.captions:ScenesData",
        "karpathy": "legenda.data.captions:KarpathyData",
        "images": "legenda.data.image_files:ImageData",
        "hf": "legenda.data.hub:HubData",
    },
)
"""A kind is a class of `Data` with its name as `kind`."""


T = TypeVar("T")


def choose_split(splits: Mapping[str, T], name: str, source: object) -> T:
    """Return a split by its name; raise DataError with the known names for another one."""
    if name not in splits:
        raise DataError(f"there is no split {name!r} of {source}; choose from {', '.join(splits)}")
    return splits[name]


_HELD_OUT = 50
"""One of so many images of train selects the best model where val is scored."""


class _OfImage(Protocol):
    @property
    def image(self) -> str: ...


E = TypeVar("E", bound=_OfImage)


def hold_out(examples: Sequence[E]) -> tuple[list[E], list[E]]:
    """Return the examples of every 50th image, or of the last of fewer, and all other examples.

    Raise DataError where all are of one image.
    """
    images = list(dict.fromkeys(example.image for example in examples))
    chosen = set(images[_HELD_OUT - 1 :: _HELD_OUT] or images[1:][-1:])
    if not chosen:
        raise DataError("train has one image, so that none is left to validate; set data.validation=val")
    parts: tuple[list[E], list[E]] = [], []
    for example in examples:
        parts[example.image not in chosen].append(example)
    return parts


class SplitSizes(Data[S]):
    """How many examples each split of generated data has, and the seed; no two splits or seeds share an example."""

    train: PositiveInt
    validation: PositiveInt
    test: PositiveInt
    seed: NonNegativeInt = 0
    examples_each: ClassVar[int] = 1
    """Training examples of one scene, video or number."""

    def size(self, name: str, source: str, most: int | None = None) -> int:
        """Return the size of the split train, val or test; raise DataError where it is above `most`."""
        size = choose_split({"train": self.train, "val": self.validation, "test": self.test}, name, source)
        if most is not None and size > most:
            raise DataError(f"the split {name} of {source} takes 1 to {most} examples, not {size}")
        return size


def find_path(path: Path, config: RunConfig, folder: Path) -> Path:
    """Return what a path in a configuration names: from the run folder, or from where that was during training."""
    trained_in = Path(config.get("environment", {}).get("folder") or folder)
    here, before = (Path(os.path.normpath(base / path)) for base in (folder.resolve(), trained_in))
    return before if split_kind(before)[0].exists() and not split_kind(here)[0].exists() else here


def data_settings(config: RunConfig, folder: Path, file: str = CONFIG) -> Data:
    """Return the settings of data in the "data" part of a configuration that is stored in a file of a run folder.

    Raise LegendaError where the part is missing, damaged, or of a plugin that is not loaded.
    """
    if not isinstance(settings := config.get("data"), Mapping):
        raise CheckpointError(f'{folder / file} has no usable "data" part; restore the file or train the run again')
    try:
        return map_paths(DATASETS.configure(settings, "data"), lambda path: find_path(path, config, folder))
    except LegendaError as error:
        raise CheckpointError(f"{folder / file}: {error}") from error
