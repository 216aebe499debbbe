"""The images of a report: scenes are drawn, photographs are searched for, and a missing one is a blank canvas."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from legenda.data.captions import KarpathyData, ScenesData
from legenda.data.scenes import FAMILIES, SceneCounts, check_caption, draw_scene, make_scene
from legenda.data.scenes.scene import Family
from legenda.errors import DataError
from legenda.images import read_image
from legenda.images.files import SUFFIXES
from legenda.io import coco_number
from legenda.report.overlay import blank_canvas

if TYPE_CHECKING:
    from legenda.data.registry import Data

CaptionCheck = Callable[[str], tuple[bool | None, str]]
"""Returns whether a caption is true, None where that is unknown, and why it is false."""

_MAX_CHARACTERS = 146_691
"""Size of an encoded photograph of 110 kB: 100 of them with their attention stay below 20 MB."""
_SIZES_AND_QUALITIES = ((512, 82), (512, 65), (448, 55), (384, 45), (256, 40))


def _no_verdict(caption: str) -> tuple[None, str]:  # noqa: ARG001
    """Return no verdict and no reason: nothing is known about the truth of a caption."""
    return None, ""


@dataclass(frozen=True)
class ReportImage:
    """An image of the report.

    kind: the group that its card names, which may be empty. missing: whether a blank canvas replaces it. lossless:
    whether it is encoded as PNG.
    """

    image: Image.Image
    kind: str = ""
    check_caption: CaptionCheck = _no_verdict
    missing: bool = False
    lossless: bool = False

    @cached_property
    def data_url(self) -> str:
        """The image as a file for browsers, in a data URL."""
        if self.lossless or self.missing:
            return _data_url(self.image, "png", optimize=True)
        url = ""
        for side, quality in _SIZES_AND_QUALITIES:
            small = self.image.copy()
            small.thumbnail((side, side))
            url = _data_url(small, "jpeg", quality=quality, optimize=True)
            if len(url) <= _MAX_CHARACTERS:
                break
        return url


def packaged_photographs() -> list[Path]:
    """Return the four photographs of the package, named in NOTICE with their sources."""
    return sorted(Path(str(resources.files("legenda"))).glob("assets/photographs/*.jpg"))


def resolve_images(
    data: Data,
    split: str,
    ids: Sequence[str],
    positions: Sequence[int],
    folder: Path | None,
    open_images: Callable[[np.ndarray], list[Image.Image]] | None = None,
) -> Callable[[int, Sequence[Sequence[float]]], ReportImage]:
    """Return a function from a position in the split and the boxes of its regions to the image.

    folder: where to search for photographs; by default next to the annotations. open_images: opens those of the split,
    in place of a search. Raise DataError for a folder that does not exist or holds none of them.
    """
    if isinstance(data, ScenesData):
        seed, families = data.seed, data.families
        return lambda position, _: draw_scene_image(split, position, seed, families)
    _check_folder(folder)
    if open_images is not None:
        return lambda position, _: ReportImage(open_images(np.array([position]))[0])
    files: dict[str, Path] = {}
    if isinstance(data, KarpathyData):
        names = {image.id: image.file for image in data.read_images()}
        wanted = {ids[position]: names[ids[position]] for position in positions}
        files = find_photographs(data, wanted, folder)
        if folder is not None and wanted and not files:
            first = next(iter(wanted.values()))
            raise DataError(f"{folder} holds none of the photographs, such as {first}; name their folder")

    def open_image(position: int, boxes: Sequence[Sequence[float]]) -> ReportImage:
        path = files.get(ids[position])
        image = blank_canvas(np.asarray(boxes)) if path is None else read_image(path)
        return ReportImage(image, missing=path is None)

    return open_image


def find_images_by_name(
    data: Data, split: str, names: Collection[str], folder: Path | None
) -> dict[str, ReportImage | None]:
    """Return images by their names, in the features or as COCO numbers; None for one that is not found.

    data: settings of a data set other than captions. folder: where to search for photographs, there and one folder
    below; by default next to the files that the settings name. Raise DataError for a folder that does not exist or
    holds none of them.
    """
    if isinstance(data, SceneCounts):
        return {name: draw_scene_image(split, int(name.rpartition("-")[2]), data.seed) for name in names}
    files = match_photographs(names, [folder] if folder is not None else _data_folders(data))
    if folder is not None and names and not files:
        raise DataError(f"{folder} holds none of the photographs, such as that of {min(names)}; name their folder")
    return {name: ReportImage(read_image(files[name])) if name in files else None for name in names}


def draw_scene_image(split: str, position: int, seed: int, families: Sequence[Family] = FAMILIES) -> ReportImage:
    """Return the scene at this position of a split; captions of it can be checked."""
    scene = make_scene(split, position, seed, families)

    def check(caption: str) -> tuple[bool | None, str]:
        verdict = check_caption(caption, scene)
        return verdict.true, verdict.reason

    return ReportImage(draw_scene(scene), scene.family, check, lossless=True)


def find_photographs(
    data: KarpathyData, names: Mapping[str, str], folder: Path | None = None, *, limit: int | None = None
) -> dict[str, Path]:
    """Return the files of at most `limit` images by id, without images that have no file there.

    names: the file names in the annotations, by id. folder: where to search, there and one folder below; by default
    next to the annotations.
    """
    root = folder or (data.annotations if data.annotations.is_dir() else data.annotations.parent)
    folders = _with_subfolders(root)
    paths: dict[str, Path] = {}
    for image_id, file in names.items():
        if len(paths) == limit:
            break
        candidates = (path / name for name in (file, PurePosixPath(file).name) for path in folders)
        path = next((candidate for candidate in candidates if candidate.is_file()), None)
        if path is not None:
            paths[image_id] = path
    return paths


def _check_folder(folder: Path | None) -> None:
    if folder is not None and not folder.is_dir():
        raise DataError(f"{folder} is not a folder; name the folder of the photographs")


def match_photographs(names: Collection[str], roots: Sequence[Path]) -> dict[str, Path]:
    """Return the files that have one of the names, perhaps with a suffix, or COCO's name for a number among them.

    roots: folders, in which and one folder below which they are; raise DataError for one that does not exist.
    """
    named: dict[str, Path] = {}
    numbered: dict[str, Path] = {}
    for root in roots:
        _check_folder(root)
    folders = (folder for root in roots for folder in _with_subfolders(root))
    for path in (path for folder in folders for path in sorted(folder.iterdir())):
        if path.suffix.lower() not in SUFFIXES["image"]:
            continue
        if name := next((name for name in (path.name, path.stem) if name in names), None):
            named.setdefault(name, path)
        elif (number := coco_number(path.stem)) in names and number is not None:
            numbered.setdefault(number, path)
    return numbered | named


def _with_subfolders(root: Path) -> list[Path]:
    return [root, *sorted(path for path in root.iterdir() if path.is_dir())]


def _data_folders(data: Data) -> list[Path]:
    """Return the folders of the files that the settings of a data set name, each once."""
    values = [getattr(data, name) for name in type(data).model_fields]
    paths = [path for value in values for path in (value if isinstance(value, tuple) else (value,))]
    folders = (path if path.is_dir() else path.parent for path in paths if isinstance(path, Path))
    return list(dict.fromkeys(folder for folder in folders if folder.is_dir()))


def _data_url(image: Image.Image, kind: str, **settings: object) -> str:
    data = io.BytesIO()
    image.save(data, format=kind, **settings)
    return f"data:image/{kind};base64,{base64.b64encode(data.getvalue()).decode()}"
