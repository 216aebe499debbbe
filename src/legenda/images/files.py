"""Images: from files, folders, patterns, the standard input and URLs; read as upright 8-bit RGB within limits.

Batches of them are read ahead by threads; an image that fails does not affect its batch.
"""

from __future__ import annotations

import glob
import itertools
import logging
import math
import os
import re
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import IO, Literal, TypeVar

import numpy as np
import pillow_heif
from PIL import Image, ImageOps

from legenda.errors import ConfigError, DataError, LegendaError, first_line, import_extra
from legenda.images.extractor import Extractor, ImageRegions, run_extractor
from legenda.io import FEATURE_SUFFIXES, IMAGE_SUFFIXES, VIDEO_SUFFIXES, open_regular
from legenda.terminal import check_stopped

T = TypeVar("T")

Medium = Literal["image", "video"]
SUFFIXES: dict[Medium, frozenset[str]] = {
    "image": IMAGE_SUFFIXES,
    "video": VIDEO_SUFFIXES,
}
"""The suffixes of images in folders and patterns."""
_NAMED = 5
"""Number of other files that a warning names."""
_LOG = logging.getLogger(__name__)
_URL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://")


def find_images(paths: Sequence[str | Path], medium: Medium = "image") -> list[Path]:
    """Return the images among files, folders (recursively, sorted) and patterns such as `photos/*.jpg`, each once.

    A file is taken with any suffix; folders and patterns select those in SUFFIXES, of images or of videos.
    Raise ConfigError when `paths` is empty, and DataError for a path that does not exist or holds no image.
    """
    return [Path(name) for name in find_names([str(path) for path in paths], medium)]


def find_names(sources: Sequence[str], medium: Medium = "image", *, allow_urls: bool = False) -> list[str]:
    """Return the names of the images of all sources, those of each sorted; otherwise as `find_images`, and with URLs.

    "-" stands for the lines of the standard input. Raise ConfigError for a URL unless URLs are allowed.
    """
    if not sources:
        raise ConfigError(f"name at least one {medium}, folder or pattern")
    named = (
        sorted(_list_source(source, medium, allow_urls), key=lambda name: name if is_url(name) else Path(name))
        for source in _with_standard_input(sources)
    )
    return list(dict.fromkeys(name for names in named for name in names))


def list_images(sources: Iterable[str], medium: Medium = "image", *, allow_urls: bool = False) -> Iterator[str]:
    """Yield the names of `find_names` in no order, possibly repeated; the names of a folder are not held in memory."""
    for source in _with_standard_input(sources):
        yield from _list_source(source, medium, allow_urls)


def image_id(name: str | Path) -> str:
    """Return the id of an image, a video or a URL in feature stores: its file name without suffix."""
    return Path(str(name).partition("?")[0] if is_url(str(name)) else name).stem


def check_ids(names: Iterable[str | Path]) -> None:
    """Raise DataError where two of the images have one id."""
    seen: dict[str, str | Path] = {}
    for name in names:
        first = seen.setdefault(image_id(name), name)
        if first is not name:
            raise DataError(f"{first} and {name} would share the id '{image_id(name)}'; rename one of them")


def is_image_name(name: str, medium: Medium = "image") -> bool:
    """Return whether a file name is of an image or video; a leading dot marks metadata of other programs (._a.jpg)."""
    path = Path(name)
    return path.suffix.lower() in SUFFIXES[medium] and not path.name.startswith(".")


def is_url(name: str) -> bool:
    """Return whether a name is a URL, to be fetched, instead of a path."""
    return _URL.match(name) is not None


def reject_url(name: str) -> None:
    """Raise ConfigError for a URL."""
    if is_url(name):
        raise ConfigError(f"{name} is a URL; add --allow-urls to fetch it, or name a file")


def _with_standard_input(sources: Iterable[str]) -> Iterator[str]:
    for source in sources:
        if source != "-":
            yield source
            continue
        lines = filter(None, (line.strip("\r\n") for line in sys.stdin))
        yield from _require(lines, "the standard input names no image; write one file, folder or pattern a line")


def _list_source(source: str, medium: Medium, allow_urls: bool) -> Iterator[str]:
    """Yield the images of one source; a URL is one where it is of http or https, or has the suffix of an image.

    Any other URL is a folder of an object store.
    """
    if not allow_urls:
        reject_url(source)
    try:
        is_image = False
        if is_url(source):
            from legenda.images.web import is_web_url  # late: it loads all of HTTP

            is_image = is_web_url(source) or is_image_name(source.split("?")[0], medium)
        if is_image or Path(source).is_file():
            if Path(source).suffix.lower() in FEATURE_SUFFIXES:
                raise DataError(
                    f"{source} holds features, not an image; legenda evaluate RUN --features {source} captions those "
                    "of the run's images, legenda.open(RUN).model.caption(legenda.Regions(features, boxes)) any others"
                )
            yield source
        else:
            fault = f"{source} holds no {medium}; name files of these types: {', '.join(sorted(SUFFIXES[medium]))}"
            yield from _require(_in_tree(source, medium), fault)
    except LegendaError:
        raise
    except Exception as error:  # fsspec's stores have no common base class of errors
        reason = getattr(error, "strerror", None) or first_line(error)
        raise DataError(
            f"{getattr(error, 'filename', None) or source} cannot be listed ({reason}); check the name or address, and "
            "the permission or your credentials to read it"
        ) from error


def _require(names: Iterator[str], message: str) -> Iterator[str]:
    """Return the names; raise DataError where there is none."""
    first = next(names, None)
    if first is None:
        raise DataError(message)
    return chain([first], names)


def _in_tree(source: str, medium: Medium) -> Iterator[str]:
    """Yield the images of a pattern, below a folder, or below a folder of an object store."""
    if is_url(source):
        system, root = import_extra("fsspec", "ray").core.url_to_fs(source)
        for folder, _, files in system.walk(root, on_error="raise"):  # the names of one folder are held in memory
            yield from (system.unstrip_protocol(f"{folder}/{name}") for name in files if is_image_name(name, medium))
    elif Path(source).is_dir():
        yield from _in_folder(source, medium)
    elif glob.has_magic(source):
        names = glob.iglob(source, recursive=True)  # noqa: PTH207 - takes absolute patterns too
        yield from (name for name in names if is_image_name(name, medium) and Path(name).is_file())
    else:
        example = "*.jpg" if medium == "image" else "*.mp4"
        raise DataError(f"{source} does not exist; name files, folders of {medium}s or a pattern such as '{example}'")


def _in_folder(folder: str, medium: Medium) -> Iterator[str]:
    """Yield the images below a folder; name other files in a warning, except those with a leading dot."""
    pending, skipped, others = [folder], list[str](), 0
    while pending:
        with os.scandir(pending.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
                elif is_image_name(entry.name, medium) and _is_file(entry):
                    yield entry.path
                elif not entry.name.startswith("."):
                    others += 1
                    skipped = sorted([*skipped, entry.name])[:_NAMED]
    if others:
        rest = f" and {others - len(skipped)} more" if others > len(skipped) else ""
        files = "file, which is" if others == 1 else "files, which are"
        _LOG.warning("%s: left out %d %s no %s: %s%s", folder, others, files, medium, ", ".join(skipped), rest)


def _is_file(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry of a folder is a file, or a link whose fault reading names, such as one to itself."""
    try:
        return entry.is_file()
    except OSError:
        return True


pillow_heif.register_heif_opener()
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF", "HEIF")
"""The formats that are read; Pillow starts a program for EPS, and decodes some others in Python, for minutes."""
_MAX_SCANS = 50
"""Scans of a JPEG; programs write about ten, and each costs time in proportion to the size of the image."""
_MAX_SEGMENTS = 1000
"""Segments of a JPEG; Pillow joins those of Exif one by one, in quadratic time."""
_MAX_SIDE = 65_535
"""Pixels of a side, as JPEG has them: a longer one is no photograph, and costs memory in proportion to it."""
_MAX_MEGAPIXELS = {"JPEG": 144, "WEBP": 40, "HEIF": 64, "AVIF": 64}
"""Megapixels of a format that are decoded in about a gigabyte; 100 for the other formats."""
_MAX_FILE_BYTES = {"TIFF": 512 << 20, "BMP": 512 << 20}
"""Largest file, in bytes, of the formats without compression; 128 MiB for the other formats."""
_KEPT_PIXELS = 1 << 23
"""Larger images are reduced by a whole factor, JPEG while it is decoded, since extractors scale them down anyway."""
_LARGE = threading.Lock()
"""Held while an image is decoded that is reduced: one at a time is in memory."""
_MARKER = re.compile(rb"\xff[\x02-\xcf\xd9-\xfe]")
"""A marker of JPEG that begins a segment, or ends the image (ITU-T T.81, table B.1)."""
_HINT = "save it again as JPEG or PNG, or leave it out"


class ImageTooLargeError(DataError):
    """An image has more pixels than are read."""


def count_pixels(file: IO[bytes], name: str, *, max_pixels: int) -> int:
    """Return the number of pixels of an uploaded image from its header, without decoding it.

    Raise ImageTooLargeError for more than `max_pixels`, DataError for files of other types than FORMATS; both give the
    `name`.
    """
    try:
        pixels = _open(file, name, lambda image: image.width * image.height)
    except ImageTooLargeError:
        pixels = max_pixels + 1
    if pixels > max_pixels:
        raise ImageTooLargeError(f"{name} has more than {max_pixels / 1e6:g} megapixels; scale it down")
    return pixels


def read_image(
    source: str | Path | IO[bytes], name: str | None = None, *, sufficient_side: int | None = None
) -> Image.Image:
    """Read the first frame of an image as 8-bit RGB, rotated by its EXIF orientation, transparency over white.

    source: a path or an open file of one of FORMATS, with its `name`. sufficient_side: see `shrink`; JPEGs are scaled
    while they are decoded. An image of more than 8 megapixels is reduced by a whole factor, so that decoding takes at
    most about a gigabyte.
    16-bit gray is scaled to 8 bits; 32-bit gray from 16 bits or 0..1 if its values are in that range, else from their
    minimum and maximum.
    Raises DataError, naming the file and the remedy, when it is missing, damaged, of another type, no regular file, has
    a side of more than 65,535 pixels, more megapixels than are decoded (JPEG 144, WebP 40, HEIF and AVIF 64, others
    100), or is a JPEG of more than 50 scans or 1,000 segments, which is determined before decoding.
    """

    def decode(image: Image.Image) -> Image.Image:
        divisor = max(_divisor(image, sufficient_side), _excess(image))
        with _LARGE if _excess(image) > 1 else nullcontext():
            if image.format == "JPEG" and divisor > 1:
                image.draft(None, (image.width // divisor, image.height // divisor))  # by 2, 4 or 8
            image = _reduce(image, _excess(image))
            ImageOps.exif_transpose(image, in_place=True)  # else it would be copied
            return shrink(_to_rgb(image), sufficient_side)

    return _open(source, name or str(source), decode)


def shrink(image: Image.Image, sufficient_side: int | None) -> Image.Image:
    """Return the image scaled down by a whole factor, where its reader needs no more pixels.

    sufficient_side: pixels that suffice for the longer side, and a fourth of them for the shorter; None for all.
    """
    divisor = _divisor(image, sufficient_side)
    return image.reduce(divisor) if divisor > 1 else image


def _divisor(image: Image.Image, sufficient_side: int | None) -> int:
    if sufficient_side is None:
        return 1
    return max(1, min(max(image.size) // sufficient_side, min(image.size) // max(1, sufficient_side // 4)))


def _excess(image: Image.Image) -> int:
    """Return the whole factor by which an image is reduced to _KEPT_PIXELS."""
    return math.ceil(math.sqrt(image.width * image.height / _KEPT_PIXELS))


def _reduce(image: Image.Image, factor: int) -> Image.Image:
    """Return an image scaled down by a whole factor, with its orientation, in strips that take little memory."""
    if factor == 1:
        return image
    image.load()
    orientation = image.getexif().get(Image.ExifTags.Base.Orientation)  # TIFF is upright by now, without one
    rows = max(1, (1 << 22) // (image.width * factor)) * factor
    strips = [
        _to_reducible(image.crop((0, top, image.width, min(top + rows, image.height)))).reduce(factor)
        for top in range(0, image.height, rows)
    ]
    reduced = Image.new(strips[0].mode, (strips[0].width, sum(strip.height for strip in strips)))
    for strip, top in zip(strips, itertools.accumulate((strip.height for strip in strips), initial=0), strict=False):
        reduced.paste(strip, (0, top))
    if orientation is not None:
        reduced.getexif()[Image.ExifTags.Base.Orientation] = orientation
    return reduced


def _to_reducible(image: Image.Image) -> Image.Image:
    """Return an image in a mode of which pixels can be averaged."""
    if image.mode.startswith("I;"):
        return image.convert("I")
    if image.mode != "RGBA" and image.has_transparency_data:
        return image.convert("RGBA")
    return image if image.mode in ("L", "RGB", "RGBA", "I", "F", "CMYK") else image.convert("RGB")


def _check_segments(file: IO[bytes], name: str) -> None:
    """Raise DataError for a JPEG of more scans or segments than are read, which would take minutes."""
    file.seek(0)
    if file.read(3) != b"\xff\xd8\xff":
        return
    file.seek(0)
    data = file.read(128 << 20)
    scans, segments, end = 0, 0, 2
    while (marker := _MARKER.search(data, end)) is not None:
        code, end = data[marker.end() - 1], marker.end()
        if code == 0xD9:  # end of the image; cameras append videos and previews
            return
        scans += code == 0xDA
        segments += 1
        if scans > _MAX_SCANS or segments > _MAX_SEGMENTS:
            raise DataError(f"{name} is a JPEG of more than {_MAX_SCANS} scans or {_MAX_SEGMENTS} segments; {_HINT}")
        end += int.from_bytes(data[end : end + 2])


def _open(source: str | Path | IO[bytes], name: str, use: Callable[[Image.Image], T]) -> T:
    """Return `use(image)` of an image within the limits of its format; raise DataError, naming it, otherwise."""

    def read() -> T:
        with open_regular(source) if isinstance(source, str | Path) else nullcontext(source) as file:
            _check_segments(file, name)
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            with Image.open(file, formats=FORMATS) as image:
                kind, pixels = image.format or "", image.width * image.height
                if max(image.size) > _MAX_SIDE or pixels > 1e6 * _MAX_MEGAPIXELS.get(kind, 100):
                    raise ImageTooLargeError(
                        f"{name} has too many pixels to be read safely ({image.width} x {image.height}); "
                        "scale it down or leave it out"
                    )
                if size > _MAX_FILE_BYTES.get(kind, 128 << 20):
                    raise DataError(f"{name} has {size >> 20} MiB, which are too many to be read safely; {_HINT}")
                return use(image)

    return _verified(read, name)


def _verified(read: Callable[[], T], name: str) -> T:
    """Return `read()`; raise DataError, naming the image, where it fails."""
    try:
        return read()
    except DataError:
        raise
    except Image.UnidentifiedImageError as error:
        raise DataError(f"{name} is not an image of a known type; {_HINT}") from error
    except Image.DecompressionBombError as error:
        raise ImageTooLargeError(
            f"{name} has too many pixels to be read safely; scale it down or leave it out"
        ) from error
    except FileNotFoundError as error:
        raise DataError(f"{name} does not exist; check its name, or leave it out") from error
    except PermissionError as error:
        raise DataError(f"{name} cannot be read (no permission); change its mode, or leave it out") from error
    except Exception as error:  # Pillow's readers raise exceptions of any type
        raise DataError(f"{name} cannot be read ({first_line(error)}); {_HINT}") from error


ImageInput = str | Path | Image.Image | np.ndarray | bytes | bytearray | IO[bytes]
"""A path, a PIL image, an array of uint8, `(H, W, 3)` or gray `(H, W)`, or the bytes or the open file of an image."""


def is_image_input(value: object) -> bool:
    """Return whether a value is one image, of the types that `to_image` takes, and not several."""
    if isinstance(value, np.ndarray):
        return value.ndim != 4
    return isinstance(value, str | Path | Image.Image | bytes | bytearray) or hasattr(value, "read")


def to_image(image: ImageInput, name: str = "the image") -> Image.Image:
    """Return an image as `read_image` does; raise DataError, with the `name` of an image that has no path, else."""
    if isinstance(image, str | Path):
        return read_image(image)
    if isinstance(image, bytes | bytearray):
        return read_image(BytesIO(image), name)
    if isinstance(image, Image.Image):
        if 0 in image.size:
            raise DataError(f"{name} has {image.width} x {image.height} pixels; leave out what is cropped to nothing")
        return _verified(lambda: _to_rgb(ImageOps.exif_transpose(image)), name)
    if not isinstance(image, np.ndarray) and hasattr(image, "read"):
        return read_image(_verified(lambda: _to_memory(image), name), name)
    if not isinstance(image, np.ndarray):
        raise DataError(f"{name} is of type {type(image).__name__}; give a path, a PIL image, a NumPy array or bytes")
    if image.dtype != np.uint8:
        raise DataError(f"{name} is an array of {image.dtype}; convert it to uint8 with values from 0 to 255")
    if image.ndim == 3 and image.shape[2] != 3 and image.shape[0] in (1, 3):
        raise DataError(f"{name} has the channels first, {image.shape}; give image.transpose(1, 2, 0)")
    if image.size == 0 or image.shape[2:] not in ((), (3,)) or image.ndim < 2:
        raise DataError(f"{name} is an array of shape {image.shape}; give (height, width, 3) or (height, width)")
    return Image.fromarray(image).convert("RGB")


def _to_memory(file: IO[bytes]) -> BytesIO:
    """Return the content of an open file, or the rest of a stream that cannot be rewound."""
    if file.seekable():
        file.seek(0)
    return BytesIO(file.read())


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode in ("I", "F") or image.mode.startswith("I;"):
        return _to_8_bits(image).convert("RGB")
    if image.has_transparency_data:
        opaque = Image.new("RGBA", image.size, "white")
        opaque.alpha_composite(image if image.mode == "RGBA" else image.convert("RGBA"))
        image = opaque
    return image.convert("RGB")


def _to_8_bits(image: Image.Image) -> Image.Image:
    """Scale gray levels of 16 or 32 bits to 0..255."""
    levels = np.asarray(image).astype(np.float64)
    if not np.isfinite(levels).all():
        raise ValueError("it holds NaN or infinite gray levels")
    low, high = 0.0, 1.0 if image.mode == "F" else 65535.0
    if levels.min() < low or levels.max() > high:
        low, high = levels.min(), levels.max()
    levels -= low  # in place: a copy takes eight bytes per pixel
    levels *= 255 / (high - low or 1)
    return Image.fromarray(levels.round(out=levels).astype(np.uint8))


_READERS = 8
"""Threads that read images, which wait for URLs most of the time."""


@dataclass
class ImageFile:
    """An image on the way to its regions.

    name: its path, relative to `folder`, or its URL; what messages and outputs call it. `image` and `regions` are None
    where `error` is a message.
    """

    name: str
    folder: Path = Path()
    image: Image.Image | None = None
    regions: ImageRegions | None = None
    error: str | None = None

    @property
    def source(self) -> Path | bytes:
        """The path of the file, or the content of the URL, which is fetched; raise DataError where that fails."""
        if not is_url(self.name):
            return self.folder / self.name
        from legenda.images.web import fetch  # late: it loads all of HTTP

        return fetch(self.name)

    def read(self, sufficient_side: int | None = None) -> ImageFile:
        """Read the image, or keep the error; sufficient_side: see `shrink`."""
        try:
            source = self.source
            self.image = read_image(
                BytesIO(source) if isinstance(source, bytes) else source, self.name, sufficient_side=sufficient_side
            )
        except LegendaError as error:
            self.fail(error)
        return self

    def fail(self, error: LegendaError) -> None:
        """Keep the message of an error, with the name of the image; raise KeyboardInterrupt after a signal."""
        check_stopped()  # a library may have made an error of it
        message = str(error)
        self.error = message if self.name in message else f"{self.name}: {message}"


def read_batches(
    names: Sequence[str], batch_size: int, folder: Path = Path(), *, sufficient_side: int | None = None
) -> Generator[list[ImageFile]]:
    """Yield batches of images in order; threads read the next one while the caller works.

    sufficient_side: see `shrink`.
    """

    def submit(start: int) -> Iterator[ImageFile]:
        files = [ImageFile(name, folder) for name in names[start : start + batch_size]]
        return pool.map(partial(ImageFile.read, sufficient_side=sufficient_side), files)

    with ThreadPoolExecutor(_READERS) as pool:
        following = submit(0)
        for start in range(batch_size, len(names) + batch_size, batch_size):
            batch, following = following, submit(start)
            yield list(batch)


def extract_batch(batch: Sequence[ImageFile], extractor: Extractor) -> None:
    """Extract the regions of the images that were read; where that fails, of one image at a time."""
    readable = [file for file in batch if file.image is not None]
    groups = [readable] if readable else []
    for group in groups:
        try:
            images = [file.image for file in group if file.image is not None]
            regions = run_extractor(extractor, images, [file.name for file in group])
        except LegendaError as error:
            if len(group) == 1:
                group[0].fail(error)
            else:
                groups += [[file] for file in group]
            continue
        for file, image_regions in zip(group, regions, strict=True):
            file.regions = image_regions


def order_by_size(names: Sequence[str], folder: Path = Path()) -> list[int]:
    """Return the positions of images ordered by width and height, so that most batches have one size; URLs first."""

    def size(name: str) -> tuple[int, int]:
        if is_url(name):
            return 0, 0
        try:
            return _open(folder / name, name, lambda image: image.size)
        except DataError:  # `read_image` names the fault
            return 0, 0

    with ThreadPoolExecutor(_READERS) as pool:
        sizes = list(pool.map(size, names))
    return sorted(range(len(names)), key=sizes.__getitem__)
