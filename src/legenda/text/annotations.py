"""Captioned images and videos from any annotations: Karpathy's layout, COCO's, VATEX's, MSR-VTT's, or a table."""

from __future__ import annotations

import logging
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Literal

import numpy as np

from legenda.config import Id, conform, get_field
from legenda.errors import DataError, did_you_mean
from legenda.io import IMAGE_SUFFIXES, parse_json, read_json, read_text, verified, without_gc
from legenda.text.tables import (
    SPLITS,
    TABLE_HINT,
    Columns,
    Row,
    find_split,
    image_name,
    is_json,
    read_rows,
    rows_of,
    text_beside_images,
)

_LOG = logging.getLogger(__name__)

Restval = Literal["train", "exclude"]

_HINT = (
    "name a file in Karpathy's layout, COCO's captions_*.json or a folder of them, a .csv, .tsv or .jsonl with file "
    "and caption, or a folder of images with text files beside them"
)
_IN_FOLDERS = ("captions_*", "vatex_*", "*videodatainfo*")
_TABLES = (".csv", ".tsv", ".jsonl", ".json", ".csv.gz", ".tsv.gz", ".jsonl.gz", ".json.gz")
_METADATA = ("metadata.csv", "metadata.jsonl")
SHARDS = "captions-*.jsonl"
"""The lines that a job of `legenda caption --out FOLDER` writes."""


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


@dataclass(frozen=True)
class Annotations:
    """The images and captions of a file or a folder of annotations.

    captions_of: the image of each id of a caption, of COCO's files. splits: whether the content or, in a folder, the
    name of each file says the split of each image. domains: the ids of the images of each domain, of nocaps'
    annotations.
    """

    images: list[CaptionedImage]
    captions_of: Mapping[str, str] = field(default_factory=dict)
    splits: bool = False
    domains: Mapping[str, list[str]] = field(default_factory=dict)


@dataclass(slots=True, eq=False, repr=False)
class _CocoCaption:
    """An entry of `annotations` in COCO's captions_*.json."""

    image_id: Id
    caption: str
    id: Id | None = None


@dataclass(slots=True, eq=False, repr=False)
class _CocoImage:
    """An entry of `images` in COCO's files; domain: in nocaps' alone."""

    id: Id
    file_name: str | None = None
    domain: str | None = None


@dataclass(slots=True, eq=False, repr=False)
class _KarpathySentence:
    """A caption in Karpathy's layout."""

    raw: str
    tokens: list[str] | None = None


@dataclass(slots=True, eq=False, repr=False)
class _KarpathyImage:
    """An image in Karpathy's layout."""

    filename: str
    split: str
    sentences: list[_KarpathySentence]
    filepath: str = ""
    cocoid: Id | None = None


@dataclass(slots=True, eq=False, repr=False)
class _VatexVideo:
    """An entry of VATEX's lists; a test file may have no captions."""

    videoID: str  # noqa: N815
    enCap: list[str] = field(default_factory=list)  # noqa: N815


@dataclass(slots=True, eq=False, repr=False)
class _MsrvttSentence:
    """A caption of MSR-VTT."""

    video_id: Id
    caption: str


@dataclass(slots=True, eq=False, repr=False)
class _MsrvttVideo:
    """A video of MSR-VTT."""

    video_id: Id
    split: str


def read_annotations(
    path: str | Path,
    *,
    lists: Path | None = None,
    restval: Restval = "train",
    columns: Columns | None = None,
) -> list[CaptionedImage]:
    """Read captioned images in any of these layouts, which is detected from the content.

    - Karpathy's layout (dataset_*.json), see `_parse_karpathy`;
    - COCO's captions_*.json, or a folder of them: an image's id is COCO's number; its split is in the name of the file
      (captions_train2014.json) or in `lists`;
    - VATEX's lists and MSR-VTT's files, or a folder of them: an id is the video's; VATEX's splits are in the names;
    - a table with a heading, JSON lines or a JSON list, with columns or keys such as `file`, `caption` and perhaps
      `split` (train without it), Flickr's *.token.txt and results.csv, see `legenda.text.tables`; an image's id is its
      file name without suffix. An object {file: [captions]} is one, too;
    - a folder of images with a text file beside each, or with metadata.csv or .jsonl, or of tables named after splits;
      folders called after splits, such as train and val, say the splits of what they hold.
    All files may be gzipped.

    lists: a folder with one list of images per split, named as karpathy_val_images.txt or coco_dev_ids.npy: the file's
    name holds train, restval, val (or dev) or test. A list has a line per image with its id or file name, or is an .npy
    of ids; COCO's may be ids of captions, as in M2's release. Without a list of train, unlisted images are of train;
    otherwise they are left out.
    restval: "train" counts those images to train, "exclude" keeps them in a separate split, `restval` (Karpathy's COCO
    split keeps there the validation images that models train on).
    columns: the names of a table's columns where they are not the usual ones.
    Empty captions are left out, with a warning that counts them.
    Raises DataError, naming file and line or key, for damaged, missing, duplicate or contradictory entries.
    """
    path = Path(path)
    annotations = load_annotations(path, columns)
    images = annotations.images
    if lists is not None:
        images = _by_lists(images, lists, annotations.captions_of)
    return [replace(i, split="train") if restval == "train" and i.split == "restval" else i for i in images]


@without_gc()
def load_annotations(path: Path, columns: Columns | None = None) -> Annotations:
    """Return the annotations of a file or a folder as `read_annotations` does, but with restval as a split."""
    columns = columns or Columns()
    if not path.exists() and path.parent.is_dir():
        names = (file.name for file in path.parent.iterdir() if file.suffix.lower() not in IMAGE_SUFFIXES)
        close = did_you_mean(path.name, names)
        hint = close if close.startswith("did") else _HINT
        raise DataError(f"{path} does not exist; {hint}")
    annotations = _read_folder(path, columns) if path.is_dir() else _read_file(path, columns)
    if not annotations.images:
        raise DataError(f"{path} holds no captions; {_HINT}")
    check_once(path, annotations.images, "id")
    return annotations


def _read_folder(folder: Path, columns: Columns) -> Annotations:
    """Read COCO's or videos' files of a folder, or its tables, or the text files beside its images."""
    for pattern in _IN_FOLDERS:
        named = (file for end in (".json", ".json.gz") for file in folder.glob(pattern + end))
        if files := sorted(file for file in named if not file.name.startswith(".")):
            parts = [(_named_split(file), _read_file(file, columns)) for file in files]
            captions_of = {caption: image for _, part in parts for caption, image in part.captions_of.items()}
            images = [
                image if part.splits or split is None else _with_split(image, split)
                for split, part in parts
                for image in part.images
            ]
            return Annotations(images, captions_of, all(part.splits or split is not None for split, part in parts))
    if shards := sorted(folder.glob(SHARDS)):
        return _of_rows([row for file in shards for row in read_rows(file, read_text(file), columns)], folder)
    if tables := sorted(file for name in _METADATA for file in folder.rglob(name)):
        rows = [_below(row, file.parent.relative_to(folder)) for file in tables for row in _rows_in(file, columns)]
        return _of_rows(_with_folders(rows), folder)
    tables = [file for file in sorted(folder.glob("[!.]*")) if file.name.endswith(_TABLES)]
    if rows := text_beside_images(folder, without_images=not tables):
        return _of_rows(_with_folders(rows), folder)
    if not tables:
        raise DataError(f"{folder} holds no captions_*.json, no table and no text beside images; {_HINT}")
    if len(tables) == 1:
        return _read_file(tables[0], columns)
    rows = []
    for file in tables:
        split = _named_split(file)
        if split is None:
            raise DataError(
                f"{folder} holds {', '.join(table.name for table in tables[:3])}; name one of them, or call each after "
                "its split, such as train.csv and val.csv"
            )
        rows += [replace(row, where=f"{row.where} of {file.name}", split=split) for row in _rows_in(file, columns)]
    return _of_rows(rows, folder)


def _rows_in(file: Path, columns: Columns) -> list[Row]:
    text = read_text(file, _HINT)
    if not is_json(file, text):
        return read_rows(file, text, columns)
    content = parse_json(text, file, _HINT)
    if not isinstance(content, list):
        raise DataError(f"{file} is no table; {TABLE_HINT}")
    return listed_rows(content, file, columns)


def listed_rows(content: object, path: Path, columns: Columns) -> list[Row]:
    """Return the rows of a JSON list of objects."""
    rows = conform(content, list[dict[str, object]], f"{path}: entry", _HINT)
    return list(rows_of(((f"entry {number}", row) for number, row in enumerate(rows)), path, columns))


def _below(row: Row, folder: Path) -> Row:
    return replace(row, file=(PurePosixPath(folder.as_posix()) / row.file).as_posix())


def _with_folders(rows: list[Row]) -> list[Row]:
    """Return rows with the splits of their folders where all are in folders called after splits."""
    parents = [PurePosixPath(row.file).parts[0] for row in rows]
    if all(row.split is None and find_split(parent) for row, parent in zip(rows, parents, strict=True)):
        return [replace(row, split=parent) for row, parent in zip(rows, parents, strict=True)]
    return rows


def _read_file(path: Path, columns: Columns) -> Annotations:
    text = read_text(path, _HINT)
    if not is_json(path, text):
        return _of_rows(read_rows(path, text, columns), path)
    content = parse_json(text, path, _HINT)
    if isinstance(content, list):
        if not (content and isinstance(content[0], dict) and "videoID" in content[0]):
            return _of_rows(listed_rows(content, path, columns), path)
        images, splits = _vatex_videos(content, path), False
    elif "annotations" in content:
        return _coco_annotations(content, path)
    elif "videos" in content and "sentences" in content:
        images, splits = _msrvtt_videos(content, path), True
    elif "images" in content:
        images, splits = _parse_karpathy(content, path), True
    elif (rows := content.get("data") if "data" in content else None) and _are_objects(rows):
        return _of_rows(listed_rows(rows, path, columns), path)
    else:
        captions = parse_captions(content, path, _HINT)
        images, splits = [CaptionedImage(name, name, tuple(texts), "train") for name, texts in captions.items()], False
    return Annotations(_without_empty(images, path), splits=splits)


def _are_objects(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(entry, dict) for entry in value)


def parse_captions(content: Mapping[str, object], path: Path, hint: str) -> dict[str, list[str]]:
    """Return the captions of each image in JSON, an object from ids to a caption or a list of captions.

    Raise DataError for captions that are not text.
    """
    captions: dict[str, list[str]] = {}
    for name, value in content.items():
        captions[name] = texts = value if isinstance(value, list) else [value]
        if not texts:
            raise DataError(f"{path} has no caption for image {name}; {hint}")
        for caption in texts:
            if not isinstance(caption, str):
                raise DataError(f"{path}: the caption of image {name} is {type(caption).__name__}, not text; {hint}")
    return captions


def _without_empty(images: list[CaptionedImage], path: Path) -> list[CaptionedImage]:
    """Return images without their empty captions, which a warning counts."""
    empty = [image.file for image in images for caption in image.captions if not caption.strip()]
    if not empty:
        return images
    _warn_of_empty(path, len(empty), f"image {empty[0]}")
    kept = []
    for image in images:
        chosen = [number for number, caption in enumerate(image.captions) if caption.strip()]
        tokens = None if image.tokens is None else tuple(image.tokens[number] for number in chosen)
        kept.append(replace(image, captions=tuple(image.captions[number] for number in chosen), tokens=tokens))
    return kept


def _warn_of_empty(source: object, count: int, first: str) -> None:
    """Warn of empty captions that are left out; first: the place of the first of them."""
    _LOG.warning("%s: left out %d empty caption%s, the first in %s", source, count, "s"[: count != 1], first)


def _parse_karpathy(content: object, path: Path) -> list[CaptionedImage]:
    """Return the images of JSON in Karpathy's layout that came from `path`, in its order.

    An image's id is its `cocoid` where it has one, else its file name without suffix. Raise DataError, naming the file
    and the key, for JSON that lacks a key, and for duplicate images.
    """
    images = list(map(_karpathy_image, get_field(content, "images", list[_KarpathyImage], path, _HINT)))
    check_once(path, images, "id")
    check_once(path, images, "file")
    return images


def _karpathy_image(image: _KarpathyImage) -> CaptionedImage:
    captions = tuple(sentence.raw for sentence in image.sentences)
    tokens = tuple(
        tuple(map(sys.intern, sentence.tokens))  # one object per word: COCO has 6.5 million tokens
        for sentence in image.sentences
        if sentence.tokens is not None
    )
    name = PurePosixPath(image.filename).stem if image.cocoid is None else image.cocoid
    file = str(PurePosixPath(image.filepath, image.filename))
    split = find_split(image.split) or image.split
    return CaptionedImage(name, file, captions, split, tokens if len(tokens) == len(captions) else None)


def check_once(path: Path, images: list[CaptionedImage], key: str) -> None:
    """Raise DataError where two images have the same id or file, as one image that is listed in two splits has."""
    seen: dict[str, CaptionedImage] = {}
    for image in images:
        value = getattr(image, key)
        other = seen.setdefault(value, image)
        if other is not image:
            raise DataError(
                f"{path}: '{other.file}' (split {other.split}) and '{image.file}' (split {image.split}) share "
                f"the {key} '{value}'; leave one of them out or rename it"
            )


def _coco_annotations(content: Mapping[str, object], path: Path) -> Annotations:
    """Return the images of COCO's annotations; without a list of images, all that have captions."""
    split = _named_split(path) or "train"
    captions, domains = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
    captions_of: dict[str, str] = {}
    for entry in get_field(content, "annotations", list[_CocoCaption], path, _HINT):
        captions[entry.image_id].append(entry.caption)
        if entry.id is not None:
            captions_of[entry.id] = entry.image_id
    named = get_field(content, "images", list[_CocoImage], path, _HINT) if content.get("images") else None
    listed = map(_CocoImage, captions) if named is None else named
    files = []
    for number, image in enumerate(listed):
        files.append((image.id, image.id if image.file_name is None else image.file_name, split))
        if number and (image.domain is None) == bool(domains):
            raise DataError(f"{path}: images[0] and images[{number}] need a domain, or none; {_HINT}")
        if image.domain is not None:
            domains[image.domain].append(image.id)
    images = _without_empty(_with_captions(files, captions, path), path)
    return Annotations(images, captions_of, domains=dict(sorted(domains.items())))


def _with_captions(
    images: Iterable[tuple[str, str, str]], captions: dict[str, list[str]], path: Path
) -> list[CaptionedImage]:
    """Return images, of which `images` lists id, file and split, with their captions."""
    joined = [CaptionedImage(name, file, tuple(captions.pop(name, ())), split) for name, file, split in images]
    if captions:
        raise DataError(f"{path} has captions of {next(iter(captions))}, which is not among its images or videos")
    return joined


def _vatex_videos(content: object, path: Path) -> list[CaptionedImage]:
    """Return the videos of one of VATEX's files with all their English captions."""
    split, videos = _named_split(path) or "train", conform(content, list[_VatexVideo], f"{path}: entry", _HINT)
    return [CaptionedImage(video.videoID, video.videoID, tuple(video.enCap), split) for video in videos]


def _msrvtt_videos(content: object, path: Path) -> list[CaptionedImage]:
    """Return the videos of one of MSR-VTT's files with their captions, each in the split that it names."""
    captions, videos = defaultdict[str, list[str]](list), []
    for sentence in get_field(content, "sentences", list[_MsrvttSentence], path, _HINT):
        captions[sentence.video_id].append(sentence.caption)
    for number, video in enumerate(get_field(content, "videos", list[_MsrvttVideo], path, _HINT)):
        if (split := find_split(video.split)) is None:
            raise DataError(
                f"{path}: videos[{number}] is of the split {video.split!r}, which is none of {', '.join(SPLITS)}"
            )
        videos.append((video.video_id, video.video_id, split))
    return _with_captions(videos, captions, path)


def _named_split(path: Path) -> str | None:
    """Return the split that a file's name holds; None without one."""
    words = (word for word in re.split(r"[^a-z]+", path.name.lower()))
    return next((split for word in words if (split := find_split(word)) is not None), None)


def _of_rows(rows: Sequence[Row], path: Path) -> Annotations:
    """Return an image for each file that rows name, in the order of their first rows."""
    first: dict[str, Row] = {}
    captions: dict[str, list[str]] = {}
    empty: list[str] = []
    by_split: dict[bool, Row] = {}
    for row in rows:
        by_split.setdefault(row.split is None, row)
        if len(by_split) == 2:
            raise DataError(
                f"{path}: {by_split[True].where} has no split, unlike {by_split[False].where}; give one to all or none"
            )
        known = first.setdefault(row.file, row)
        if row.split is not None and known.split is not None and find_split(row.split) != find_split(known.split):
            raise DataError(
                f"{path}: '{row.file}' is in two splits, {known.split} ({known.where}) and {row.split} ({row.where}); "
                "leave one"
            )
        kept = [caption.strip() for caption in row.captions if caption.strip()]
        empty += [row.where] * (len(row.captions) - len(kept))
        captions.setdefault(row.file, []).extend(kept)
    if empty:
        _warn_of_empty(path, len(empty), empty[0])
    ids: dict[str, Row] = {}
    images = []
    for file, row in first.items():
        other = ids.setdefault(image_name(file), row)
        if other is not row:
            raise DataError(
                f"{path}: '{other.file}' ({other.where}) and '{file}' ({row.where}) share the id '{image_name(file)}'; "
                "leave one of them out or rename it"
            )
        split = "train" if row.split is None else find_split(row.split)
        if split is None:
            raise DataError(f"{path}: the split {row.split!r} of {row.where} is none of {', '.join(SPLITS)}")
        images.append(CaptionedImage(image_name(file), file, tuple(captions[file]), split))
    return Annotations(images, splits=any(row.split is not None for row in rows))


def _by_lists(images: list[CaptionedImage], folder: Path, captions_of: Mapping[str, str]) -> list[CaptionedImage]:
    """Return the images with the splits that the lists of a folder give them."""
    aliases: tuple[Callable[[CaptionedImage], str], ...] = (
        lambda image: PurePosixPath(image.file).stem,
        lambda image: PurePosixPath(image.file).name,
        lambda image: image.file,
        lambda image: image.id,
    )
    names = {alias(image): image.id for alias in aliases for image in images}  # the strictest is written last
    split_of: dict[str, str] = {}
    seen: set[str] = set()
    for file in sorted([*folder.glob("[!.]*.txt"), *folder.glob("[!.]*.npy")]):
        words = [word for word in re.split(r"[^a-z]+", file.stem.lower()) if word in SPLITS]
        if not words:
            continue  # a README, or a list of something else
        if len(words) > 1:
            raise DataError(f"{file} names several splits; keep one of {', '.join(words)} in its name")
        split = SPLITS[words[0]]
        seen.add(split)
        for entry in _listed(file, captions_of, names):
            image = next((names[part] for part in entry if part in names), None)
            if image is None:
                raise DataError(
                    f"{file} lists {entry[0]}, which is not in the annotations; name those of the same data set"
                )
            if split_of.setdefault(image, split) != split:
                raise DataError(f"{file} lists image {image}, which another list has in {split_of[image]}; leave one")
    if not seen:
        known = ", ".join(SPLITS)
        raise DataError(f"{folder} holds no list of a split; add files with one id per line, named after {known}")
    listed = [image for image in images if image.id in split_of or "train" not in seen]
    return [_with_split(image, split_of.get(image.id, "train")) for image in listed]


def _with_split(image: CaptionedImage, split: str) -> CaptionedImage:
    return image if image.split == split else replace(image, split=split)


def _listed(file: Path, captions_of: Mapping[str, str], names: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    """Return the names by which each entry of a list may be known."""
    if file.suffix == ".npy":
        ids = verified(lambda: np.load(file, allow_pickle=False).reshape(-1).tolist(), file, "save an array of ids")
        of_captions = any(str(number) not in names for number in ids)
        for number in map(str, ids):
            yield (captions_of.get(number, number) if of_captions else number,)
        return
    for line in read_text(file).splitlines():
        if words := line.split():
            yield tuple(part for word in words for part in (word, PurePosixPath(word).name, PurePosixPath(word).stem))


def read_image_list(path: Path) -> list[tuple[str, str]]:
    """Return ids and file names, "" where there is none, of the images in COCO's annotations or another list.

    A list is JSON, or text with an id or a file name a line. Raise DataError, naming file and entry, for another file.
    """
    hint = "give COCO's image_info_*.json, a JSON list of ids or a text file with one a line"
    if Path(path.stem if path.suffix == ".gz" else path.name).suffix != ".json":
        return [(PurePosixPath(line).stem, line) for line in map(str.strip, read_text(path, hint).splitlines()) if line]
    content = read_json(path, hint)
    entries = get_field(content, "images", list, path, hint) if isinstance(content, Mapping) else content
    if not isinstance(entries, list) or not entries:
        raise DataError(f"{path} lists no images; {hint}")
    images = []
    for number, entry in enumerate(entries):
        where = f"image {number} of {path}"
        if isinstance(entry, Mapping):
            image = conform({"file_name": entry.get("filename"), **entry}, _CocoImage, where, hint)
            images.append((image.id, image.file_name or ""))
        elif isinstance(entry, int | str) and not isinstance(entry, bool):
            images.append((str(entry), ""))
        else:
            raise DataError(f"{where} is no id; {hint}")
    return images
