"""Captioned images and videos from any annotations: Karpathy's layout, COCO's, VATEX's, MSR-VTT's, or a table."""

from __future__ import annotations

import csv
import io
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import numpy as np

from legenda.errors import DataError
from legenda.io import get_field, parse_json, read_json, read_text, verified

Restval = Literal["train", "exclude"]

_HINT = (
    "name a file in Karpathy's layout, COCO's captions_*.json or a folder of them, or a .csv, .tsv or .jsonl with file "
    "and caption"
)
_TABLES = {".csv": ",", ".tsv": "\t"}
_IN_FOLDERS = ("captions_*", "vatex_*", "*videodatainfo*")
_FILE_NAMES = ("file", "image", "filename", "file_name", "image_name", "path")
_CAPTION_NAMES = ("caption", "comment", "text", "sentence")
_MSRVTT_SPLITS = {"train": "train", "validate": "val", "val": "val", "test": "test"}
_SPLIT_WORDS = {"train": "train", "restval": "restval", "val": "val", "dev": "val", "test": "test"}


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


def read_annotations(
    path: str | Path, *, lists: Path | None = None, restval: Restval = "train"
) -> list[CaptionedImage]:
    """Read captioned images in any of these layouts, which is detected from the file.

    - Karpathy's layout (dataset_*.json), see `parse_karpathy`;
    - COCO's captions_*.json, or a folder of them: an image's id is COCO's number; its split is in the name of the file
      (captions_train2014.json) or in `lists`;
    - VATEX's lists and MSR-VTT's files, or a folder of them: an id is the video's; VATEX's splits are in the names;
    - .csv or .tsv with a heading, or .jsonl: columns or keys `file`, `caption` and perhaps `split` (train without it);
      an image's id is its file name without suffix. Flickr30k's results.csv with its bars is one of these.
    All may be gzipped.

    lists: a folder with one list of images per split, named as karpathy_val_images.txt or coco_dev_ids.npy: the file's
    name holds train, restval, val (or dev) or test. A list has a line per image with its id or file name, or is an .npy
    of ids; COCO's may be ids of captions, as in M2's release. Without a list of
    train, unlisted images are of train; else they are left out.
    restval: "train" counts those images to train, "exclude" keeps them in a separate split, `restval` (Karpathy's COCO
    split keeps there the validation images that models train on).
    Raises DataError, naming file and line or key, for damaged, missing, duplicate or contradictory entries.
    """
    path = Path(path)
    captions_of: Mapping[str, str] = {}
    if kind := table_kind(path):
        images = _read_table(path, kind)
    else:
        images, captions_of = _read_json(path)
    if lists is not None:
        images = _by_lists(images, lists, captions_of)
    check_once(path, images, "id")
    return [replace(i, split="train") if restval == "train" and i.split == "restval" else i for i in images]


def table_kind(path: Path) -> str:
    """Return .csv, .tsv or .jsonl for a file of that name, perhaps gzipped, and nothing for others."""
    kind = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
    return kind if kind in (*_TABLES, ".jsonl") and not path.is_dir() else ""


def _read_json(path: Path) -> tuple[list[CaptionedImage], Mapping[str, str]]:
    """Images of one file, or of all captions_*.json in a folder, and for COCO's captions the images of their ids."""
    files = [path]
    if path.is_dir():
        candidates = (sorted(path.glob(pattern + end)) for pattern in _IN_FOLDERS for end in (".json", ".json.gz"))
        files = next((several for several in candidates if several), [])
        if not files:
            raise DataError(f"{path} holds no captions_*.json; {_HINT}")
    images: list[CaptionedImage] = []
    captions_of: dict[str, str] = {}
    for file in files:
        content = read_json(file, _HINT)
        if isinstance(content, dict) and "annotations" in content:
            images += _coco_images(content, file, captions_of)
        elif isinstance(content, list) and content and isinstance(content[0], dict) and "videoID" in content[0]:
            images += _vatex_videos(content, file)
        elif isinstance(content, dict) and "videos" in content and "sentences" in content:
            images += _msrvtt_videos(content, file)
        else:
            images += parse_karpathy(content, file)
    return images, captions_of


def parse_karpathy(content: Any, path: Path) -> list[CaptionedImage]:
    """Return the images of JSON in Karpathy's layout that came from `path`, in its order.

    An image's id is its `cocoid` where it has one, else its file name without suffix. Raise DataError, naming the file
    and the key, for JSON that lacks a key, and for duplicate images.
    """
    if not isinstance(content, dict):
        raise DataError(f"{path} holds a JSON {type(content).__name__}, not an object with 'images'; {_HINT}")
    images = [_parse_image(where, entry) for where, entry in entries_of(content, "images", path, _HINT)]
    check_once(path, images, "id")
    check_once(path, images, "file")
    return images


def entries_of(content: Any, key: str, path: Path, hint: str) -> Iterator[tuple[str, Any]]:
    """Yield the entries of a list in the JSON of a file, each after its place for messages."""
    for number, entry in enumerate(get_field(content, key, list, str(path), hint)):
        yield f"{path}: {key}[{number}]", entry


def _id(entry: Any, key: str, where: str) -> str:
    return str(get_field(entry, key, int | str, where, _HINT))


def _strings(entry: Any, key: str, where: str) -> tuple[str, ...]:
    values = get_field(entry, key, list, where, _HINT)
    if not all(isinstance(value, str) for value in values):
        raise DataError(f"{where} has {key} that are not all text; {_HINT}")
    return tuple(map(sys.intern, values))  # one object per word: COCO has 6.5 million tokens


def _parse_image(where: str, entry: Any) -> CaptionedImage:
    name, split = (get_field(entry, key, str, where, _HINT) for key in ("filename", "split"))
    folder = get_field(entry, "filepath", str, where, _HINT) if "filepath" in entry else ""
    sentences = list(entries_of(entry, "sentences", Path(where), _HINT))
    captions = tuple(get_field(sentence, "raw", str, place, _HINT) for place, sentence in sentences)
    tokens = None
    if all("tokens" in sentence for _, sentence in sentences):
        tokens = tuple(_strings(sentence, "tokens", place) for place, sentence in sentences)
    image = PurePosixPath(name).stem if entry.get("cocoid") is None else _id(entry, "cocoid", where)
    return CaptionedImage(image, str(PurePosixPath(folder, name)), captions, split, tokens)


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


def _coco_images(content: Mapping[str, Any], path: Path, captions_of: dict[str, str]) -> list[CaptionedImage]:
    split, captions = _split_in(path), defaultdict[str, list[str]](list)
    for where, entry in entries_of(content, "annotations", path, _HINT):
        image = captions_of[_id(entry, "id", where)] = _id(entry, "image_id", where)
        captions[image].append(get_field(entry, "caption", str, where, _HINT))
    entries = entries_of(content, "images", path, _HINT) if "images" in content else ()
    images = [
        (_id(entry, "id", where), get_field(entry, "file_name", str, where, _HINT), split) for where, entry in entries
    ]
    return _with_captions(images, captions, path)


def _with_captions(
    images: Iterable[tuple[str, str, str]], captions: dict[str, list[str]], path: Path
) -> list[CaptionedImage]:
    """Return images, of which ids, files and splits are given, with the captions of each."""
    joined = [CaptionedImage(name, file, tuple(captions.pop(name, ())), split) for name, file, split in images]
    if captions:
        raise DataError(f"{path} has captions of {next(iter(captions))}, which is not among its images or videos")
    return joined


def _vatex_videos(content: Sequence[Any], path: Path) -> list[CaptionedImage]:
    """Videos of one of VATEX's files with all their English captions; a test file may have none."""
    split, videos = _split_in(path), []
    for number, entry in enumerate(content):
        where = f"{path}: entry {number}"
        name = get_field(entry, "videoID", str, where, _HINT)
        captions = _strings(entry, "enCap", where) if "enCap" in entry else ()
        videos.append(CaptionedImage(name, name, captions, split))
    return videos


def _msrvtt_videos(content: Mapping[str, Any], path: Path) -> list[CaptionedImage]:
    """Videos of one of MSR-VTT's files with their captions, each in the split that it names."""
    captions = defaultdict[str, list[str]](list)
    for where, entry in entries_of(content, "sentences", path, _HINT):
        captions[_id(entry, "video_id", where)].append(get_field(entry, "caption", str, where, _HINT))
    videos = []
    for where, entry in entries_of(content, "videos", path, _HINT):
        name, split = _id(entry, "video_id", where), get_field(entry, "split", str, where, _HINT)
        if split not in _MSRVTT_SPLITS:
            raise DataError(f"{where} is of the split {split!r}, which is none of {', '.join(_MSRVTT_SPLITS)}")
        videos.append((name, name, _MSRVTT_SPLITS[split]))
    return _with_captions(videos, captions, path)


def _split_in(path: Path) -> str:
    """Return the split that a file's name holds; train without one."""
    splits = [split for word, split in _SPLIT_WORDS.items() if re.search(rf"(?:^|_){word}", path.name)]
    return splits[0] if splits else "train"


def _read_table(path: Path, kind: str) -> list[CaptionedImage]:
    """One image for all rows of its file, in the order of their first."""
    captions: dict[str, list[str]] = {}
    splits: dict[str, str] = {}
    first_of: dict[bool, str] = {}
    for where, entry in _rows(path, kind):
        columns = [[name for name in known if name in entry] for known in (_FILE_NAMES, _CAPTION_NAMES)]
        if not all(columns):
            keys = ", ".join(map(repr, entry)) or "nothing"
            raise DataError(f"{path}: {where} has no 'file' and 'caption' but {keys}")
        for first, second in (names[:2] for names in columns if len(names) > 1):
            raise DataError(f"{path}: {where} has '{first}' and '{second}', which mean the same; leave one of them out")
        file, caption, split = *(entry[name] for (name,) in columns), entry.get("split") or ""
        first_of.setdefault(not str(split).strip(), where)
        if len(first_of) == 2:
            raise DataError(f"{path}: {first_of[True]} has no split, unlike {first_of[False]}; give one to all or none")
        split = "train" if True in first_of else split
        if not all(isinstance(value, str) for value in (file, caption, split)):
            raise DataError(f"{path}: file, caption or split of {where} is not text; a column may be missing there")
        file, split = file.strip(), _SPLIT_WORDS.get(split.strip())
        if not file:
            raise DataError(f"{path}: {where} names no file")
        if split is None:
            raise DataError(f"{path}: the split of {where} is none of {', '.join(_SPLIT_WORDS)}")
        if splits.setdefault(file, split) != split:
            raise DataError(f"{path}: '{file}' is in two splits, {splits[file]} and {split} ({where}); leave one")
        captions.setdefault(file, []).append(caption.strip())
    if not captions:
        raise DataError(f"{path} holds no captions; {_HINT}")
    return [CaptionedImage(PurePosixPath(f).stem, f, tuple(sentences), splits[f]) for f, sentences in captions.items()]


def _rows(path: Path, kind: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the position in the file of every row, and its values by column."""
    text = read_text(path, _HINT)
    if kind == ".jsonl":
        for number, line in enumerate(text.split("\n"), start=1):  # a caption may hold Unicode's other line ends
            if line.strip():
                entry = parse_json(line, f"line {number} of {path}", "give one JSON object per line")
                if not isinstance(entry, dict):
                    raise DataError(f"{path}: line {number} is not a JSON object with file and caption")
                yield f"line {number}", entry
        return
    heading = text.partition("\n")[0]
    other = next((mark for mark in "|;" if mark in heading and "," not in heading), None)  # Flickr30k, spreadsheets
    quoting: Literal[0, 3] = csv.QUOTE_NONE if kind == ".tsv" or other == "|" else csv.QUOTE_MINIMAL
    delimiter = _TABLES[kind] if kind == ".tsv" or other is None else other
    rows = _parse(text, path, delimiter=delimiter, quoting=quoting)
    names = [name.strip().lower() for name in next(rows, (0, []))[1]]
    for name in filter(None, names):
        if names.count(name) > 1:
            raise DataError(f"{path} has {names.count(name)} columns '{name}'; leave one of them")
    for line, row in rows:
        if any(row[len(names) :]):
            raise DataError(f"{path}: line {line} has {len(row)} columns, its heading {len(names)}; quote its captions")
        yield f"line {line}", dict(zip_longest(names, row[: len(names)]))


def _parse(text: str, path: Path, delimiter: str, quoting: Literal[0, 3]) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of a table that are not empty, the heading first, each after the number of its first line.

    Raise DataError, naming the line, for a quotation mark that is not closed, or closed in a later row only.
    """
    lines = text.split("\n")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, quoting=quoting, strict=True)
    start, hint = 0, "close it, and double the marks inside of a value"
    while True:
        try:
            row = next(reader, None)
        except csv.Error as error:
            rest = "\n".join(lines[start:])
            whole = re.match(rf'(?:(?:"(?:[^"]|"")*+"|[^"\n{delimiter}][^\n{delimiter}]*+)?{delimiter})*+', rest)
            end = whole.end() if whole else 0
            fault = "is not closed" if rest[end : end + 1] == '"' else "or a value is at fault"
            line = start + 1 + rest[:end].count("\n")
            raise DataError(f"{path}: a quotation mark in line {line} {fault} ({error}); {hint}") from error
        if row is None:
            return
        if reader.line_num > start + 1 and _holds_rows(row, delimiter):
            raise DataError(
                f"{path}: a quotation mark in line {start + 1} is closed in line {reader.line_num} only, after what "
                f"looks like other rows; {hint}"
            )
        if row:
            yield start + 1, row
        start = reader.line_num


def _holds_rows(row: Sequence[str], delimiter: str) -> bool:
    """Return whether a line of a value would be a row like this one: as many values, in a column of its own a split, a
    number or the suffix of a name in both.
    """

    def kind(value: str) -> str:
        value = value.strip()
        return value if value in _SPLIT_WORDS else "0" * value.isdecimal() or PurePosixPath(value).suffix

    for column, value in enumerate(row):
        parts = [part.split(delimiter) for part in value.split("\n")]
        for number, part in enumerate(parts):
            before, after = row[:column] if number == 0 else [], row[column + 1 :] if number == len(parts) - 1 else []
            line = [*before, *part, *after]
            own = zip(line, row, strict=False) if len(parts) > 1 and len(line) == len(row) else ()
            pairs = [(kind(one), kind(other)) for one, other in own][len(before) : len(line) - len(after)]
            if any(one == other and one.strip(".") and " " not in one for one, other in pairs):
                return True
    return False


def _by_lists(images: list[CaptionedImage], folder: Path, captions_of: Mapping[str, str]) -> list[CaptionedImage]:
    """Return the images with the splits that the lists of a folder give them."""
    names = {name: image.id for image in images for name in (image.id, PurePosixPath(image.file).stem)}
    split_of: dict[str, str] = {}
    seen: set[str] = set()
    for file in sorted([*folder.glob("*.txt"), *folder.glob("*.npy")]):
        words = [word for word in re.split(r"[^a-z]+", file.stem.lower()) if word in _SPLIT_WORDS]
        if not words:
            continue  # a README, or a list of something else
        if len(words) > 1:
            raise DataError(f"{file} names several splits; keep one of {', '.join(words)} in its name")
        split = _SPLIT_WORDS[words[0]]
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
        known = ", ".join(_SPLIT_WORDS)
        raise DataError(f"{folder} holds no list of a split; add files with one id per line, named after {known}")
    listed = [image for image in images if image.id in split_of or "train" not in seen]
    return [replace(image, split=split_of.get(image.id, "train")) for image in listed]


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
            yield tuple(part for word in words for part in (word, PurePosixPath(word).stem))


def read_image_list(path: Path) -> list[tuple[str, str]]:
    """Return ids and file names, "" where there is none, of the images in COCO's annotations or another list.

    A list is JSON, or text with an id or a file name a line. Raise DataError, naming file and entry, for another file.
    """
    hint = "give COCO's image_info_*.json, a JSON list of ids or a text file with one a line"
    if Path(path.stem if path.suffix == ".gz" else path.name).suffix != ".json":
        return [(PurePosixPath(line).stem, line) for line in map(str.strip, read_text(path, hint).splitlines()) if line]
    content = read_json(path, hint)
    entries = get_field(content, "images", list, str(path), hint) if isinstance(content, Mapping) else content
    if not isinstance(entries, list) or not entries:
        raise DataError(f"{path} lists no images; {hint}")
    images = []
    for number, entry in enumerate(entries):
        where = f"image {number} of {path}"
        if isinstance(entry, Mapping):
            file = entry.get("file_name", entry.get("filename", ""))
            images.append((str(get_field(entry, "id", int | str, where, hint)), file if isinstance(file, str) else ""))
        elif isinstance(entry, int | str) and not isinstance(entry, bool):
            images.append((str(entry), ""))
        else:
            raise DataError(f"{where} is no id; {hint}")
    return images
