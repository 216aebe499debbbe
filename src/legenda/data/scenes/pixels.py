"""Scenes as images: their drawing, regions found in the pixels, and a split of them as a model reads it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Self, get_args

import numpy as np
from PIL import Image, ImageChops, ImageDraw
from pydantic import model_validator

from legenda.config import PositiveInt
from legenda.data.registry import S, SplitSizes
from legenda.data.scenes.language import references
from legenda.data.scenes.scene import COLORS, FAMILIES, NUM_ABSENT, Family, Scene, make_scene
from legenda.errors import ConfigError, DataError
from legenda.features.base import RegionReader
from legenda.images.extractor import Extractor, ExtractorIdentity
from legenda.io import atomic_write, verified

if TYPE_CHECKING:
    from legenda.regions import Regions

SCENES = ExtractorIdentity(name="scenes")
"""The extractor of the regions of scenes."""
SIDE = 320
"""Pixels of a drawn image's side; the smallest thing then has more pixels than its stencil."""
_STENCIL = 16
"""A shape is a stencil of _STENCIL x _STENCIL cells, enlarged to the size of the thing."""
_PATCH = 8
"""Every found thing becomes a patch of _PATCH x _PATCH cells, whatever its size."""
FEATURE_DIM = _PATCH * _PATCH * 3

MAX_REGIONS = 50
"""An image with more components is none of things on a plain ground."""

_MIN_AREA = 1.5e-4  # of the image's pixels; smaller components are specks
_MAX_PIXELS = 1 << 21
"""Larger images are reduced: components take a hundred bytes a pixel."""
_CONTRAST = 30
_DARK = 0.5  # of the color: the stripes of striped things
_PACK = np.array([65536, 256, 1])
_PAPER = 240.0  # subtracted from all colors


def draw_scene(scene: Scene) -> Image.Image:
    """Return the image of a scene, RGB, SIDE x SIDE, drawn with hard edges."""
    image = Image.new("RGB", (SIDE, SIDE), scene.ground)
    for thing in scene.things:
        left, top = (round(edge * SIDE) for edge in thing.box[:2])
        pixels = round(thing.size * SIDE)
        mask = _stencil(thing.shape).resize((pixels, pixels), Image.Resampling.NEAREST)
        color = tuple(min(max(part + tint, 0), 255) for part, tint in zip(COLORS[thing.color], thing.tint, strict=True))
        image.paste(color, (left, top), mask)
        if thing.striped:
            stripes = ImageChops.multiply(_stencil(thing.shape), _stripes())
            dark = tuple(round(part * _DARK) for part in color)
            image.paste(dark, (left, top), stripes.resize((pixels, pixels), Image.Resampling.NEAREST))
    return image


@cache
def _stencil(shape: str) -> Image.Image:
    """Return the cells that a shape fills; every shape reaches all four sides."""
    stencil = Image.new("L", (_STENCIL, _STENCIL), 0)
    brush = ImageDraw.Draw(stencil)
    for draw, corners, fill in _STENCILS[shape]:
        getattr(brush, draw)([(x * _LAST, y * _LAST) for x, y in corners], fill=fill)
    return stencil


@cache
def _stripes() -> Image.Image:
    """Return the darker cells of a striped thing: every other pair of lines, one line of the patch."""
    lines = np.arange(_STENCIL) // (_STENCIL // _PATCH) % 2 == 1
    return Image.fromarray(np.repeat(lines[:, None], _STENCIL, axis=1).astype(np.uint8) * 255)


def _star_corners() -> tuple[tuple[float, float], ...]:
    """Return a five-pointed star stretched to fill the unit square."""
    turns = [math.pi * (i / 5 - 0.5) for i in range(10)]
    corners = [(r * math.cos(t), r * math.sin(t)) for r, t in zip([1.0, 0.42] * 5, turns, strict=True)]
    xs, ys = [x for x, _ in corners], [y for _, y in corners]
    return tuple(((x - min(xs)) / (max(xs) - min(xs)), (y - min(ys)) / (max(ys) - min(ys))) for x, y in corners)


_LAST = _STENCIL - 1
_WHOLE, _INSIDE = ((0, 0), (1, 1)), ((4 / _LAST, 4 / _LAST), (11 / _LAST, 11 / _LAST))
_STENCILS = {
    "circle": [("ellipse", _WHOLE, 255)],
    "square": [("rectangle", _WHOLE, 255)],
    "triangle": [("polygon", ((0.5, 0), (1, 1), (0, 1)), 255)],
    "diamond": [("polygon", ((0.5, 0), (1, 0.5), (0.5, 1), (0, 0.5)), 255)],
    "star": [("polygon", _star_corners(), 255)],
    "cross": [
        ("rectangle", ((0, 5 / _LAST), (1, 10 / _LAST)), 255),
        ("rectangle", ((5 / _LAST, 0), (10 / _LAST, 1)), 255),
    ],
    "ring": [("ellipse", _WHOLE, 255), ("ellipse", _INSIDE, 0)],
    "frame": [("rectangle", _WHOLE, 255), ("rectangle", _INSIDE, 0)],
}
"""The drawings of each shape, one over the other: method of the brush, corners in the unit square, and fill."""


def load_scenes(model: str, *, compute: object) -> Extractor:  # noqa: ARG001 - the arguments of every extractor
    """Return the extractor for images of the embedded scenes."""
    return Extractor(SCENES, lambda images: [find_things(image) for image in images])


def find_things(image: Image.Image) -> tuple[np.ndarray, np.ndarray]:
    """Return the regions of an image of things on a plain ground: features `(n, FEATURE_DIM)` and boxes `(n, 4)`.

    The background is the most frequent color along the border; pixels that differ from it form connected components.
    Each component's crop, with everything else blanked out, is resized to one patch. Things of one kind drawn by
    `draw_scene` give the same patch to the last digit at every size and position, near any thing and on any background;
    only the boxes, in 0..1, depend on the position. Raises DataError when nothing, or far too much, stands out.
    """
    factor = math.ceil(math.sqrt(image.width * image.height / _MAX_PIXELS))
    pixels = np.asarray(image.convert("RGB").reduce(factor))
    border = np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]]).astype(np.int32)
    codes, counts = np.unique(border @ _PACK, return_counts=True)
    ground = codes[counts.argmax()] // _PACK % 256
    labels, sizes, slices = find_components(_differs(pixels, ground))
    height, width = labels.shape
    numbers = [n for n in range(1, len(sizes)) if sizes[n] >= _MIN_AREA * labels.size]
    if not 1 <= len(numbers) <= MAX_REGIONS:
        raise DataError(
            f"the image shows {len(numbers)} things on a plain ground, where 1 to {MAX_REGIONS} can be described; "
            "use an image like those that `legenda demo` draws"
        )
    features, boxes = [], []
    for number in numbers:
        rows, columns = slices[number - 1]
        features.append(_patch(pixels[rows, columns], labels[rows, columns] == number))
        boxes.append((columns.start / width, rows.start / height, columns.stop / width, rows.stop / height))
    return np.stack(features), np.asarray(boxes, dtype=np.float32)


def find_components(filled: np.ndarray) -> tuple[np.ndarray, np.ndarray, list[tuple[slice, slice]]]:
    """Return the connected components of a mask `(H, W)`, whose pixels touch by sides or corners.

    These are labels `(H, W)`, 0 for the ground and 1, 2 and so on in the order of the first pixels, row by row; the
    number of pixels of each label; and rows and columns of each component. Pixels of a row form runs, and runs that
    touch have one root, the first run of the component.
    """
    width = filled.shape[1] + 1  # a row ends in ground, so that no run goes on in the next one
    edges = np.diff(np.pad(filled, ((0, 0), (1, 1))).astype(np.int8), axis=1).ravel()
    starts, ends = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    upper, lower = _touching_runs(starts, ends, width)
    roots = np.arange(len(starts))
    while (roots[lower] != roots[upper]).any():
        smaller = np.minimum(roots[lower], roots[upper])
        np.minimum.at(roots, roots[lower], smaller)
        np.minimum.at(roots, roots[upper], smaller)
        while (roots[roots] != roots).any():
            roots = roots[roots]
    _, component = np.unique(roots, return_inverse=True)
    count = component.max(initial=-1) + 1
    labels = np.zeros(filled.shape, np.int32)
    labels[filled] = np.repeat(component + 1, ends - starts)
    top, left = np.full((2, count), filled.size)
    bottom, right = np.zeros((2, count), int)
    np.minimum.at(top, component, starts // width)
    np.minimum.at(left, component, starts % width)
    np.maximum.at(bottom, component, starts // width + 1)
    np.maximum.at(right, component, ends - starts // width * width)
    corners = zip(top.tolist(), bottom.tolist(), left.tolist(), right.tolist(), strict=True)
    slices = [(slice(first, last), slice(start, end)) for first, last, start, end in corners]
    return labels, np.bincount(labels.ravel(), minlength=count + 1), slices


def _touching_runs(starts: np.ndarray, ends: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the pairs of runs in a row and the next that touch; starts, ends: positions in rows of `width`."""
    first = np.searchsorted(ends, starts - width)
    counts = np.maximum(np.searchsorted(starts, ends - width, side="right") - first, 0)
    lower = np.repeat(np.arange(len(starts)), counts)
    upper = np.arange(len(lower)) - np.repeat(np.cumsum(counts) - counts - first, counts)
    is_next = starts[upper] // width == starts[lower] // width - 1
    return upper[is_next], lower[is_next]


def _differs(pixels: np.ndarray, ground: np.ndarray) -> np.ndarray:
    """Return where any channel is further than _CONTRAST from the ground."""
    pairs = [(pixels[..., channel], middle) for channel, middle in enumerate(ground.astype(np.uint8))]
    return np.logical_or.reduce([np.maximum(x, y) - np.minimum(x, y) > _CONTRAST for x, y in pairs])


def _patch(crop: np.ndarray, filled: np.ndarray) -> np.ndarray:
    """Return the crop read at the centers of _STENCIL x _STENCIL cells, then averaged to _PATCH x _PATCH.

    Sampled at the centers of its cells, an enlarged stencil is recovered exactly, whatever its size.
    """
    rows, columns = (((np.arange(_STENCIL) + 0.5) * side / _STENCIL).astype(int) for side in filled.shape)
    cells = np.ix_(rows, columns)
    colors = np.where(filled[cells][..., None], (crop[cells] - _PAPER) / 128.0, 0.0)
    block = _STENCIL // _PATCH
    return colors.reshape(_PATCH, block, _PATCH, block, 3).mean(axis=(1, 3), dtype=np.float32).reshape(-1)


_MOST_THINGS = 7


@dataclass(frozen=True, eq=False)
class SceneSplit:
    """Scenes with their regions, padded to one number, and their captions.

    features `(B, N, FEATURE_DIM)` float32, boxes `(B, N, 4)` float32, mask `(B, N)` bool, True where a thing is.
    """

    scenes: tuple[Scene, ...]
    features: np.ndarray
    boxes: np.ndarray
    mask: np.ndarray
    captions: tuple[tuple[str, ...], ...]


def make_split(
    split: str, count: int, seed: int = 0, families: Sequence[Family] = FAMILIES, cache: Path | None = None
) -> SceneSplit:
    """Return the first `count` scenes of a split, drawn and read back.

    cache: a folder that keeps the regions of such splits, which takes six times as long to draw as to read.
    """
    scenes = tuple(make_scene(split, index, seed, families) for index in range(count))
    path = None if cache is None else cache / f"{'-'.join(families)}-{split}-{seed}-{count}.npz"
    if path is not None and path.exists():
        arrays = verified(lambda: dict(np.load(path, allow_pickle=False)), path, "delete it to draw the scenes again")
    else:
        arrays = _draw(scenes)
        if path is not None:
            with atomic_write(path) as partial, partial.open("wb") as file:
                np.savez(file, allow_pickle=False, **arrays)
    return SceneSplit(scenes, captions=tuple(references(scene) for scene in scenes), **arrays)


def _draw(scenes: Sequence[Scene]) -> dict[str, np.ndarray]:
    """Return features, boxes and mask of scenes."""
    most = NUM_ABSENT if any(scene.family in ("absent", "complete") for scene in scenes) else _MOST_THINGS
    features = np.zeros((len(scenes), most, FEATURE_DIM), dtype=np.float32)
    boxes = np.zeros((len(scenes), most, 4), dtype=np.float32)
    mask = np.zeros((len(scenes), most), dtype=bool)
    for index, scene in enumerate(scenes):
        region_features, region_boxes = find_things(draw_scene(scene))
        features[index, : len(region_features)] = region_features
        boxes[index, : len(region_features)] = region_boxes
        mask[index, : len(region_features)] = True
    return {"features": features, "boxes": boxes, "mask": mask}


class SceneCounts(SplitSizes[S]):
    """How many scenes each split has, and their seed; no two splits or seeds share a scene."""

    train: PositiveInt = 12_000
    validation: PositiveInt = 300
    test: PositiveInt = 600
    families: tuple[Family, ...] = FAMILIES
    """The families that alternate, at least one: near, size, bind; for captions also absent, complete, parity."""
    cache: Path | None = None
    """A folder that keeps the regions of the scenes for other runs."""

    @model_validator(mode="after")
    def _check_scene_counts(self) -> Self:
        if not self.families:
            raise ConfigError(f"families must name at least one of {', '.join(get_args(Family))}")
        return self

    def generate(self, name: str) -> SceneSplit:
        """Return the scenes of the split train, val or test, drawn and read back."""
        return make_split(name, self.size(name, "scenes"), self.seed, self.families, self.cache)


def scene_reader(split: SceneSplit, scenes: Sequence[int] | None = None) -> RegionReader:
    """Return a function from positions `(B,)` to the Regions of their scenes.

    scenes: the index of the scene of each position; None where the positions are those of the scenes.
    """
    import torch

    from legenda.regions import Regions

    regions = Regions.from_numpy(split.features, split.boxes, split.mask)
    index = np.arange(len(split.scenes)) if scenes is None else np.asarray(scenes)

    def read(positions: np.ndarray) -> Regions:
        return regions[torch.from_numpy(index[positions])]

    return read
