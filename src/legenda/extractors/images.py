"""Finding pictures on disk and reading any of them as upright RGB."""

import glob
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from legenda.errors import UserError
from legenda.io import verified

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff"})
_HINT = "save it again as JPEG or PNG, or leave it out"


def find_images(paths: Sequence[str | Path]) -> list[Path]:
    """The pictures behind files, folders (with all folders below, in sorted order) and patterns such as `photos/*.jpg`.

    A file named outright is taken whatever its suffix; folders and patterns give those in SUFFIXES. None comes twice.
    Raises UserError, naming the path, when it does not exist or holds no picture, and when nothing is given.
    """
    if not paths:
        raise UserError("name at least one picture, folder or pattern")
    found: dict[Path, None] = {}
    for given in paths:
        path = Path(given)
        if path.is_file():
            found[path] = None
            continue
        if path.is_dir():
            candidates = path.rglob("*")
        elif glob.has_magic(str(given)):
            names = glob.iglob(str(given), recursive=True)  # noqa: PTH207 - takes absolute patterns too
            candidates = map(Path, names)
        else:
            raise UserError(f"{path} does not exist; name a picture, a folder of pictures or a pattern such as '*.jpg'")
        pictures = sorted(file for file in candidates if _looks_like_picture(file))
        if not pictures:
            raise UserError(f"{path} holds no picture; name one with pictures of the kinds {_kinds()}")
        found.update(dict.fromkeys(pictures))
    return list(found)


def _looks_like_picture(path: Path) -> bool:
    # names with a leading dot are other programs' side files, such as ._photo.jpg
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".") and path.is_file()


def _kinds() -> str:
    return ", ".join(sorted(suffix[1:] for suffix in SUFFIXES))


def read_image(path: str | Path) -> Image.Image:
    """Reads a picture as 8-bit RGB: turned upright by its EXIF mark, transparency laid over white, first frame only.

    Grey levels of 16 bits are scaled down to 8; 32-bit grey is scaled from 16 bits or 0..1 where its values fit there,
    else from its own lowest and highest value.
    Raises UserError, naming the file and the remedy, when it is missing, broken, truncated, no picture, or has more
    pixels than Pillow deems safe (about 179 million).
    """

    def read() -> Image.Image:
        with Image.open(path) as picture:
            return _to_rgb(ImageOps.exif_transpose(picture))

    try:
        return verified(read, path, _HINT)
    except UserError as error:
        if isinstance(error.__cause__, Image.UnidentifiedImageError):
            raise UserError(f"{path} is not a picture of a known kind; {_HINT}") from error
        if isinstance(error.__cause__, Image.DecompressionBombError):
            raise UserError(f"{path} has too many pixels to be read safely; scale it down or leave it out") from error
        raise


def _to_rgb(picture: Image.Image) -> Image.Image:
    if picture.mode in ("I", "F") or picture.mode.startswith("I;"):
        return _deep_grey(picture).convert("RGB")
    if picture.has_transparency_data:
        opaque = Image.new("RGBA", picture.size, "white")
        opaque.alpha_composite(picture.convert("RGBA"))
        picture = opaque
    return picture.convert("RGB")


def _deep_grey(picture: Image.Image) -> Image.Image:
    """Grey of 16 or 32 bits, brought to 0..255."""
    levels = np.asarray(picture).astype(np.float64)
    if not np.isfinite(levels).all():
        raise ValueError("it holds NaN or infinite grey levels")
    low, high = 0.0, 1.0 if picture.mode == "F" else 65535.0
    if levels.min() < low or levels.max() > high:
        low, high = levels.min(), levels.max()
    scaled = (levels - low) * (255 / (high - low or 1))
    return Image.fromarray(scaled.round().astype(np.uint8))
