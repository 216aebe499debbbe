"""Captioned images from Karpathy's annotation files (dataset_coco.json, dataset_flickr8k.json and their like)."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from legenda.errors import DataError
from legenda.io import get_field, read_json

_HINT = "name an annotation file in Karpathy's layout, such as dataset_coco.json"


@dataclass(frozen=True)
class CaptionedImage:
    """One image of a data set.

    id: how predictions and feature stores name it; file: its path below the folder of images;
    captions: what people wrote, verbatim (empty where a test set withholds them); split: train, val or test;
    tokens: the tokens of each caption, where the file has them.
    """

    id: str
    file: str
    captions: tuple[str, ...]
    split: str
    tokens: tuple[tuple[str, ...], ...] | None = None


def read_karpathy(path: str | Path, *, restval: str = "train") -> list[CaptionedImage]:
    """Read a .json or .json.gz file in Karpathy's layout, in the file's order.

    An image's id is its `cocoid` where it has one, else its file name without suffix.
    restval: the split in which images of `restval` count (Karpathy's COCO split keeps there the validation images
    that models train on).
    Raises DataError, naming the file and the key, for JSON that is invalid or lacks a key, and for duplicate images.
    """
    path = Path(path)
    return parse_karpathy(read_json(path, _HINT), path, restval=restval)


def parse_karpathy(content: Any, path: Path, *, restval: str = "train") -> list[CaptionedImage]:
    """Return the images in JSON that came from `path`, as `read_karpathy` returns them."""
    if not isinstance(content, dict):
        raise DataError(f"{path} holds a JSON {type(content).__name__}, not an object with 'images'; {_HINT}")
    entries = get_field(content, "images", list, str(path), _HINT)
    images = [_parse_image(f"{path}: images[{number}]", entry, restval) for number, entry in enumerate(entries)]
    check_once(path, images, "id")
    check_once(path, images, "file")
    return images


def _parse_image(where: str, entry: Any, restval: str) -> CaptionedImage:
    name, split = (get_field(entry, key, str, where, _HINT) for key in ("filename", "split"))
    folder = get_field(entry, "filepath", str, where, _HINT) if "filepath" in entry else ""
    sentences = get_field(entry, "sentences", list, where, _HINT)
    captions = tuple(
        get_field(sentence, "raw", str, f"{where}.sentences[{number}]", _HINT)
        for number, sentence in enumerate(sentences)
    )
    tokens = None
    if all("tokens" in sentence for sentence in sentences):
        tokens = tuple(_tokens(sentence, f"{where}.sentences[{number}]") for number, sentence in enumerate(sentences))
    image = PurePosixPath(name).stem if entry.get("cocoid") is None else str(entry["cocoid"])
    split = restval if split == "restval" else split
    return CaptionedImage(image, str(PurePosixPath(folder, name)), captions, split, tokens)


def _tokens(sentence: Mapping[str, Any], where: str) -> tuple[str, ...]:
    tokens = get_field(sentence, "tokens", list, where, _HINT)
    if not all(isinstance(token, str) and token for token in tokens):
        raise DataError(f"{where} has tokens that are not all text; {_HINT}")
    return tuple(map(sys.intern, tokens))  # one object per word: COCO has 6.5 million tokens


def check_once(path: Path, images: list[CaptionedImage], key: str) -> None:
    """DataError where two images have the same id or the same file, which one image in two splits also has."""
    seen: dict[str, CaptionedImage] = {}
    for image in images:
        value = getattr(image, key)
        other = seen.setdefault(value, image)
        if other is not image:
            raise DataError(
                f"{path}: '{other.file}' (split {other.split}) and '{image.file}' (split {image.split}) share "
                f"the {key} '{value}'; leave one of them out or rename it"
            )
