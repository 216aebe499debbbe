"""Splits of generated data, and the choice of a split by its name."""

from collections.abc import Mapping
from typing import ClassVar, TypeVar

from legenda.config import Config
from legenda.errors import DataError

T = TypeVar("T")


def choose_split(splits: Mapping[str, T], name: str, source: object) -> T:
    """Return a split by its name; raise DataError with the known names for another one."""
    if name not in splits:
        raise DataError(f"there is no split {name!r} of {source}; choose from {', '.join(splits)}")
    return splits[name]


class SplitSizes(Config):
    """How many examples each split of generated data has, and the seed; no two splits or seeds share an example."""

    train: int
    validation: int
    test: int
    seed: int = 0
    examples_each: ClassVar[int] = 1
    """Training examples of one scene, video or number."""

    def size(self, name: str, source: str, most: int | None = None) -> int:
        """Return the size of the split train, val or test; raise DataError unless it is 1 to `most`."""
        size = choose_split({"train": self.train, "val": self.validation, "test": self.test}, name, source)
        if not 1 <= size <= (size if most is None else most):
            limit = "at least 1 example" if most is None else f"1 to {most} examples"
            raise DataError(f"the split {name} of {source} takes {limit}, not {size}")
        return size
