"""The pictures of a report: scenes are drawn, photographs are looked for, and what is not found stays blank."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from PIL import Image

from legenda.datasets.annotations import read_annotations
from legenda.datasets.captions import DataSettings, KarpathyData, ScenesData
from legenda.datasets.scenes import SceneCounts, draw_scene, judge, make_scene
from legenda.errors import UserError
from legenda.extractors import read_image
from legenda.extractors.images import SUFFIXES
from legenda.visualization.overlay import blank_canvas

Judge = Callable[[str], tuple[bool | None, str]]

_MOST_BYTES = 110_000  # of a photograph, so that 100 of them and their attention stay below 20 MB
_ATTEMPTS = ((512, 82), (512, 65), (448, 55), (384, 45), (256, 40))


@dataclass(frozen=True)
class Subject:
    """A picture to be shown: its kind, which may be empty, and who can tell whether a caption of it is true, and why
    not; `found` is False where a blank canvas stands for it.
    """

    image: Image.Image
    kind: str
    judge: Judge
    found: bool = True
    drawn: bool = False

    @cached_property
    def encoded(self) -> tuple[bytes, str]:
        """The bytes of a file that a browser shows, and their media type."""
        if self.drawn or not self.found:
            return _saved(self.image, format="PNG", optimize=True), "image/png"
        data = b""
        for side, quality in _ATTEMPTS:
            small = self.image.copy()
            small.thumbnail((side, side))
            data = _saved(small, format="JPEG", quality=quality, optimize=True)
            if len(data) <= _MOST_BYTES:
                break
        return data, "image/jpeg"


def find_subjects(
    data: DataSettings, split: str, ids: Sequence[str], positions: Sequence[int], folder: Path | None
) -> Callable[[int, Sequence[Sequence[float]]], Subject]:
    """Gives, for a position in the split and the boxes of its regions, what is to be shown of it.

    folder: where photographs lie; None looks beside the annotations. Raises UserError for a folder that does not exist
    or that holds none of them.
    """
    if isinstance(data, ScenesData):
        seed = data.seed
        return lambda position, _: draw_subject(split, position, seed)
    if folder is not None and not folder.is_dir():
        raise UserError(f"{folder} is no folder; name the one that holds the photographs with --image-folder")
    files: dict[str, Path] = {}
    if isinstance(data, KarpathyData):
        names = {image.id: image.file for image in read_annotations(data.annotations, lists=data.lists)}
        wanted = {ids[position]: names[ids[position]] for position in positions}
        files = find_photographs(data, wanted, folder)
        if folder is not None and wanted and not files:
            first = next(iter(wanted.values()))
            raise UserError(f"{folder} holds none of the photographs, such as {first}; name their folder")

    def photograph(position: int, boxes: Sequence[Sequence[float]]) -> Subject:
        path = files.get(ids[position])
        if path is None:
            return Subject(blank_canvas(np.asarray(boxes)), "", _unjudged, found=False)
        return Subject(read_image(path), "", _unjudged)

    return photograph


def find_by_name(
    data: Any, split: str, images: Collection[str], folder: Path | None
) -> Callable[[str], Subject | None]:
    """Gives, for the name of an image as features or COCO's numbers have it, its picture; None where it is not found.

    data: settings of data that are not captions. folder: where photographs lie, themselves or in a folder there; None
    looks beside the files that the settings name. Raises UserError for a folder that does not exist or that holds none
    of them.
    """
    if isinstance(data, SceneCounts):
        seed = data.seed
        return cache(lambda image: draw_subject(split, int(image.rpartition("-")[2]), seed))
    if folder is not None and not folder.is_dir():
        raise UserError(f"{folder} is no folder; name the one that holds the photographs with --image-folder")
    files = _named_photographs(set(images), [folder] if folder is not None else _folders_of(data))
    if folder is not None and images and not files:
        raise UserError(f"{folder} holds none of the photographs, such as that of {min(images)}; name their folder")
    return lambda image: Subject(read_image(files[image]), "", _unjudged) if image in files else None


def draw_subject(split: str, position: int, seed: int) -> Subject:
    """A scene of a split, which can be judged."""
    scene = make_scene(split, position, seed)

    def judged(caption: str) -> tuple[bool | None, str]:
        verdict = judge(caption, scene)
        return verdict.true, verdict.reason

    return Subject(draw_scene(scene), scene.family, judged, drawn=True)


def _unjudged(caption: str) -> tuple[bool | None, str]:  # noqa: ARG001 - nobody can tell
    return None, ""


def find_photographs(
    data: KarpathyData, names: Mapping[str, str], folder: Path | None = None, *, most: int | None = None
) -> dict[str, Path]:
    """The files of the images that can be found, by identity; at most so many.

    names: how the annotations call the files, by identity. folder: where they lie, themselves or in a folder there;
    None looks beside the annotations.
    """
    beside = data.annotations if data.annotations.is_dir() else data.annotations.parent
    root = folder or beside
    folders = [root, *sorted(path for path in root.iterdir() if path.is_dir())]
    found: dict[str, Path] = {}
    for identity, file in names.items():
        if len(found) == most:
            break
        places = (place for name in (file, PurePosixPath(file).name) for place in (path / name for path in folders))
        path = next((place for place in places if place.is_file()), None)
        if path is not None:
            found[identity] = path
    return found


def _named_photographs(images: Collection[str], roots: Sequence[Path]) -> dict[str, Path]:
    """Files that are called as the images are but for their suffix, or that end with COCO's number of an image."""
    found: dict[str, Path] = {}
    numbered: dict[str, Path] = {}
    for path in (path for root in roots for path in _photographs(root)):
        digits = path.stem.rpartition("_")[2]
        if path.stem in images:
            found.setdefault(path.stem, path)
        elif digits.isdecimal() and str(int(digits)) in images:
            numbered.setdefault(str(int(digits)), path)
    return numbered | found


def _photographs(root: Path) -> Iterator[Path]:
    """Those of a folder and then of the folders there."""
    for folder in (root, *sorted(path for path in root.iterdir() if path.is_dir())):
        yield from sorted(path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES)


def _folders_of(data: Any) -> list[Path]:
    """The folders of the files that settings of data name, each once."""
    assert dataclasses.is_dataclass(data)
    values = [getattr(data, field.name) for field in dataclasses.fields(data)]
    paths = [path for value in values for path in (value if isinstance(value, tuple) else (value,))]
    folders = (path if path.is_dir() else path.parent for path in paths if isinstance(path, Path))
    return list(dict.fromkeys(folder for folder in folders if folder.is_dir()))


def _saved(image: Image.Image, **settings: Any) -> bytes:
    data = io.BytesIO()
    image.save(data, **settings)
    return data.getvalue()
