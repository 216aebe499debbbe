"""Batches of images of one size: padding to a common size would change the features at the borders."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

T = TypeVar("T")

SHORT_SIDE, LONG_SIDE = 600, 1000
"""Pixels to which Bottom-Up attention and the grids of Jiang et al. (CVPR 2020) resize the short side, and at most the
long one."""


def resize_scale(size: tuple[int, int]) -> float:
    """Return the factor by which an image of this size is resized."""
    short, long = sorted(size)
    scale = SHORT_SIDE / short
    return LONG_SIDE / long if round(scale * long) > LONG_SIDE else scale


def map_groups(function: Callable[[list[T]], list[Any]], items: Sequence[T], key: Callable[[T], Hashable]) -> list[Any]:
    """Return the results of a function of lists for all items, in their order; a list holds items of one key."""
    groups: dict[Hashable, list[int]] = {}
    for position, item in enumerate(items):
        groups.setdefault(key(item), []).append(position)
    results: dict[int, Any] = {}
    for positions in groups.values():
        results.update(zip(positions, function([items[position] for position in positions]), strict=True))
    return [results[position] for position in range(len(items))]
