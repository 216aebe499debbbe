"""Rows of captions, in the forms that people have: tables, JSON lines and lists, and text beside the images.

The form follows from the content of a file, not from its name:

    a heading, then rows    .csv and .tsv, also with semicolons or bars (Flickr30k's results.csv, Kaggle's captions.txt)
    1.jpg#0 TAB caption     Flickr's *.token.txt; rows without a heading, whose first cell is the name of an image
    1.jpg: caption          what `legenda caption` prints
    JSON lines, lists       objects with a file and a caption or a list of captions, as COCO's results have them
    NAME.txt                beside NAME.jpg in a folder, one caption in each line
"""

from __future__ import annotations

import ast
import csv
import io
import json
import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from legenda.config import Config
from legenda.errors import DataError, did_you_mean
from legenda.io import IMAGE_SUFFIXES, VIDEO_SUFFIXES, parse_json, read_text

_LOG = logging.getLogger(__name__)

TABLE_HINT = "give a heading with file and caption, such as image,caption"
_FILES = (
    "file filename filepath image imagename imagepath imagefile imagefilename img imgpath imgname path photo picture",
    "imageid imgid",
    "id name key questionid",
)
"""Names of the column of files, without case and signs; those of a later group count where there is none of an earlier
one, and two of one group are refused."""
_CAPTIONS = (
    "caption captions comment comments text texts sentence sentences",
    "prompt description descriptions raw rawcaption captiontext captionstr referencestrs alttext alt title txt",
)
_PREDICTIONS = (
    "prediction predictions predicted predictedcaption pred generated generatedcaption generatedtext response output "
    "answer hypothesis hyp"
)
"""Names of the column of a model's captions, which may stand beside one of references."""
_SPLITS = ("split", "set subset partition phase")
_NUMBERED = re.compile(r"(?:caption|comment|sentence|text)\d{1,2}")
"""Columns of the first, second and further captions: caption1, caption_2."""
_TEXTS = ("raw", "caption", "text", "sentence")
"""Keys of the text of a caption that is an object itself."""

SPLITS = {
    "train": "train",
    "training": "train",
    "restval": "restval",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "validate": "val",
    "dev": "val",
    "development": "val",
    "eval": "val",
    "evaluation": "val",
    "test": "test",
    "testing": "test",
}
"""The name of a split here, by the words that people use for it."""

_MARKS = "\t|;,"
"""Separators of columns."""
_SUFFIX = "|".join(sorted(re.escape(suffix[1:]) for suffix in IMAGE_SUFFIXES))
_UNNAMED_ROW = re.compile(rf'"?[^\t|;,]+?(?:\.(?:{_SUFFIX})"?|#\d+)(?:#\d+)?"?\s*(?P<mark>[\t|;,])', re.IGNORECASE)
"""The start of a row without a heading: the name of an image, perhaps with the number of a caption, and a separator."""
_QUERY = r"\?[^\s:]{0,2000}+(?::(?! )[^\s:]{0,2000}+){0,9}+"
"""The query of a URL; without bounds, a long line of question marks would take quadratic time."""
_PRINTED_ROW = re.compile(rf"(?P<file>.+?\.(?:{_SUFFIX})(?:{_QUERY})?): (?P<score>-?\d+\.\d{{3}} )?(?P<text>.*)", re.I)
"""A line that `legenda caption` prints."""
_MISSING_BAR = re.compile(r"\s*(\d+)\s\s+(\S.*)")
"""Number and caption of the row of Flickr30k's results.csv in which the bar between them is missing."""


class Columns(Config):
    """Names of the columns of a table; None for the usual ones."""

    file: str | None = None
    caption: str | None = None
    split: str | None = None
    predicted: bool = False
    """Whether a column of a model's captions counts before one of references, where a table has both."""


@dataclass(frozen=True)
class Row:
    """The captions of an image in one row of a table.

    where: the place in the file, such as "line 3". file: the name or path of the image as the table has it. split: as
    the table has it; None where it has none.
    """

    where: str
    file: str
    captions: tuple[str, ...]
    split: str | None = None


def image_name(file: str) -> str:
    """Return the id of an image: its file name without folders and without the suffix of an image or a video."""
    path = PurePosixPath(file)
    return path.stem if path.suffix.lower() in IMAGE_SUFFIXES | VIDEO_SUFFIXES else path.name


def find_split(word: str) -> str | None:
    """Return our name of a split, train, restval, val or test; None for a word that is none."""
    return SPLITS.get(re.sub(r"[-_ ]?20\d\d$", "", word.strip().lower()))  # train2014


def is_json(path: Path, text: str) -> bool:
    """Return whether the text of a file is one JSON value, not a table and not JSON lines."""
    start = text[:200].lstrip()[:1]
    return start in ("{", "[") and not _is_lines(path, text) and not _is_printed(text)


def _is_printed(text: str) -> bool:
    """Return whether `legenda caption` has printed the first line, of an image whose name may begin as JSON does."""
    match = _PRINTED_ROW.fullmatch(text[:1000].lstrip().partition("\n")[0])  # JSON may have no other line
    return match is not None and '"' not in match["file"]


def _is_lines(path: Path, text: str) -> bool:
    """Return whether a text begins with a line of one JSON object, before others or in a file of JSON lines."""
    line, _, rest = text.lstrip().partition("\n")
    if not line.startswith("{") or not line.rstrip().endswith("}"):
        return False
    if not rest[:10_000].strip() and not {".jsonl", ".ndjson"} & set(path.suffixes):
        return False
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def read_rows(path: Path, text: str, columns: Columns) -> list[Row]:
    """Return the rows of a table or of JSON lines; raise DataError, naming the line, for what is missing."""
    if text.lstrip().startswith("{") and not _is_printed(text):
        return list(rows_of(_json_lines(path, text), path, columns))
    first = next((line for line in text.split("\n") if line.strip()), "")
    for mark in _MARKS:
        with suppress(csv.Error):  # a cell is longer than the module csv takes
            heading = next(csv.reader([first], delimiter=mark))
            if _Layout.of(heading, columns, path).is_whole:
                return list(rows_of(_cells(path, text, mark), path, columns))
    if match := _UNNAMED_ROW.match(first):
        return list(_unnamed_rows(path, text, match["mark"]))
    if _PRINTED_ROW.fullmatch(first):
        return list(_printed_rows(path, text))
    mark = max(_MARKS, key=first.count)
    _, names = next(_parse_csv(path, text, mark), (1, []))  # raises where a quotation mark is the fault
    if not names:
        return []
    raise DataError(_unknown_columns(path, "line 1", names, columns))


def rows_of(entries: Iterable[tuple[str, Mapping[str, object]]], path: Path, columns: Columns) -> Iterator[Row]:
    """Yield the rows of mappings from the names of columns to values, each after its place in the file."""
    layouts: dict[tuple[str, ...], _Layout] = {}
    for where, entry in entries:
        names = tuple(entry)
        layout = layouts.get(names)
        if layout is None:
            layout = layouts[names] = _Layout.of(names, columns, path)
        if entry.get("error") and not any(entry.get(name) for name in layout.captions):
            continue  # an image that `legenda caption` could not read
        if not layout.is_whole:
            raise DataError(_unknown_columns(path, where, names, columns))
        file = entry[layout.file]
        if isinstance(file, int) and not isinstance(file, bool):
            file = str(file)
        if not isinstance(file, str):
            raise DataError(f"{path}: {layout.file!r} of {where} is of type {type(file).__name__}, not text")
        if not file.strip().strip("./"):
            raise DataError(f"{path}: {where} names no file")
        captions: list[str] = []
        for name in layout.captions:
            if len(layout.captions) == 1 or entry[name]:  # not all images have a fifth caption
                captions += _captions_in(entry[name], f"{path}: {name!r} of {where}")
        split = entry[layout.split] if layout.split else None
        if not isinstance(split, str | None):
            raise DataError(f"{path}: the split of {where} is of type {type(split).__name__}, not text")
        yield Row(where, _path_of(file), tuple(captions), (split or "").strip() or None)


def _unknown_columns(path: Path, where: str, names: Sequence[str], columns: Columns) -> str:
    for wanted in (columns.file, columns.caption, columns.split):
        if wanted is not None and not _find(names, (), wanted, "", path):
            return f"{path}: {where} has no column {wanted!r}; {did_you_mean(wanted, names)}"
    has = ", ".join(map(repr, names)) or "nothing"
    message = f"{path}: {where} has no columns of files and captions but {has:.300}; call them file and caption"
    if columns.predicted:  # for which no option names columns
        return message
    return (
        f"{message}, or name them with data.file_column= and data.caption_column=, in legenda score with --file-column "
        "and --caption-column"
    )


def _path_of(file: str) -> str:
    file = file.strip()
    return file.replace("\\", "/") if "/" not in file else file  # as Windows writes it


@dataclass(frozen=True)
class _Layout:
    """The columns of a table that hold files, captions and splits."""

    file: str
    captions: tuple[str, ...]
    split: str

    @classmethod
    def of(cls, names: Sequence[str], columns: Columns, path: Path) -> _Layout:
        """Return the columns that hold files, captions and splits, by their names; "" for one that is missing."""
        for name, count in Counter(name.strip().lower() for name in names).items():
            if name and count > 1:
                raise DataError(f"{path} has {count} columns {name!r}; leave one of them")
        file = _find(names, _FILES, columns.file, "file", path)
        groups = (_PREDICTIONS, *_CAPTIONS) if columns.predicted else (*_CAPTIONS, _PREDICTIONS)
        caption = _find(names, groups, columns.caption, "caption", path)
        captions = (caption,) if caption else tuple(name for name in names if _NUMBERED.fullmatch(_plain(name)))
        return cls(file, captions, _find(names, _SPLITS, columns.split, "split", path))

    @property
    def is_whole(self) -> bool:
        return bool(self.file and self.captions)


def _plain(name: object) -> str:
    return re.sub(r"[\W_]+", "", str(name).lower())


def _find(names: Sequence[str], groups: Sequence[str], wanted: str | None, what: str, path: Path) -> str:
    if wanted is not None:
        exact = [name for name in names if name == wanted]
        return next(iter(exact or [name for name in names if name.strip().lower() == wanted.strip().lower()]), "")
    for group in groups:
        matches = [name for name in names if _plain(name) in group.split()]
        if len(matches) > 1:
            a, b = (name.strip() for name in matches[:2])
            raise DataError(
                f"{path} has the columns {a!r} and {b!r}, which mean the same; leave one of them out, or name the one "
                f"that counts with data.{what}_column="
            )
        if matches:
            return matches[0]
    return ""


def _captions_in(value: object, where: str) -> list[str]:
    """Return the captions in a cell or a value of JSON: text, a list of texts, or objects that hold the text."""
    if isinstance(value, str):
        if value.startswith("[") and value.endswith("]"):
            return _list_in(value) or [value]
        return [value]
    if isinstance(value, Mapping):
        return _captions_in(next((value[key] for key in _TEXTS if key in value), None), where)
    if isinstance(value, list):
        return [caption for part in value for caption in _captions_in(part, where)]
    problem = "is missing" if value is None else f"is of type {type(value).__name__}, not text"
    raise DataError(f"{where} {problem}; give it a caption, or leave the row out")


def _list_in(cell: str) -> list[str]:
    """Return the texts of a list in a cell, as JSON or Python writes it; none where it is no such list."""
    for parse in (json.loads, ast.literal_eval):
        try:
            value = parse(cell)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
        if isinstance(value, list) and all(isinstance(part, str) for part in value):
            return value
    return []


def _json_lines(path: Path, text: str) -> Iterator[tuple[str, Mapping[str, object]]]:
    for number, line in enumerate(text.split("\n"), start=1):  # a caption may hold Unicode's other line ends
        if line.strip():
            entry = parse_json(line, f"{path}: line {number}", "give one JSON object a line")
            if not isinstance(entry, dict):
                raise DataError(f"{path}: line {number} is not a JSON object with file and caption")
            yield f"line {number}", entry


def _cells(path: Path, text: str, mark: str) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Yield the rows of a table with a heading; a cell that a row lacks is None."""
    rows = _parse_csv(path, text, mark)
    _, heading = next(rows)
    heading = [name.strip() for name in heading]
    for line, row in rows:
        if mark == "|" and len(row) == len(heading) - 1:
            parts = (_MISSING_BAR.fullmatch(cell) or (cell,) for cell in row)
            row = [cell for part in parts for cell in (part if isinstance(part, tuple) else part.groups())]
        if any(cell.strip() for cell in row[len(heading) :]):
            raise DataError(
                f"{path}: line {line} has {len(row)} columns, its heading {len(heading)}; put captions with "
                f"{'tabs' if mark == chr(9) else repr(mark)} in quotation marks"
            )
        cells: list[object] = [*row, *[None] * (len(heading) - len(row))]
        yield f"line {line}", dict(zip(heading, cells, strict=False))


def _parse_csv(path: Path, text: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of a table that are not empty, the heading first, each after the number of its first line.

    Raise DataError, naming the line, for a quotation mark that is not closed, or closed in a later row only.
    """
    lines = text.split("\n")
    quoting: Literal[0, 3] = csv.QUOTE_NONE if delimiter in "\t|" else csv.QUOTE_MINIMAL
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
        if any(map(str.strip, row)):
            yield start + 1, row if quoting == csv.QUOTE_MINIMAL else list(map(_unquoted, row))
        start = reader.line_num


def _holds_rows(row: Sequence[str], delimiter: str) -> bool:
    """Return whether a line inside of a value looks like a row of the table.

    It does where it has as many values as the row, and in some column both have the same split, both a number, or both
    a name with the same suffix.
    """

    def kind(value: str) -> str:
        value = value.strip()
        return value if value in SPLITS else "0" * value.isdecimal() or PurePosixPath(value).suffix

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


def _unquoted(cell: str) -> str:
    """Return a cell without the quotation marks around it."""
    match = re.fullmatch(r'\s*"((?:[^"]|"")*)"\s*', cell)
    return cell if match is None else match[1].replace('""', '"')


def _unnamed_rows(path: Path, text: str, mark: str) -> Iterator[Row]:
    """Yield rows of image and caption, and perhaps split, without a heading; the caption may hold the separator."""
    rows = list(_parse_csv(path, text, mark))
    with_split = all(len(row) > 2 and find_split(row[-1]) for _, row in rows)
    for line, (file, *rest) in rows:
        if not rest:
            raise DataError(f"{path}: line {line} has no caption; write image and caption in each line")
        file = re.sub(r"#\d+$", "", file.strip())
        if not file:
            raise DataError(f"{path}: line {line} names no file")
        caption = mark.join(rest[:-1] if with_split else rest)
        yield Row(f"line {line}", _path_of(file), (caption,), rest[-1] if with_split else None)


def _printed_rows(path: Path, text: str) -> Iterator[Row]:
    matches = []
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            if (match := _PRINTED_ROW.fullmatch(line)) is None:
                raise DataError(f"{path}: line {number} is not an image and its caption, as in a.jpg: A dog runs.")
            matches.append((number, match))
    scored = all(match["score"] for _, match in matches)  # of several captions an image
    for number, match in matches:
        text = match["text"] if scored else f"{match['score'] or ''}{match['text']}"
        yield Row(f"line {number}", match["file"], (text,))


def text_beside_images(folder: Path, *, without_images: bool) -> list[Row]:
    """Return the captions of a folder of images and text files of the same names, NAME.txt beside NAME.jpg.

    NAME.caption, and NAME.json with a caption in it, count as text files. A text file has one caption in each line;
    images and text files without the other are counted in a warning.

    without_images: whether text files count where the folder holds no image at all.
    """
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    images = {path.with_suffix(""): path for path in files if path.suffix.lower() in IMAGE_SUFFIXES}
    texts = {path.with_suffix(""): path for path in files if path.suffix.lower() in (".txt", ".caption")}
    for path in files:
        if path.suffix.lower() == ".json" and path.with_suffix("") in images:
            texts.setdefault(path.with_suffix(""), path)
    pairs = {
        stem: (images.get(stem, stem), path)
        for stem, path in texts.items()
        if stem in images or (without_images and not images)
    }
    unpaired = len(images.keys() - pairs.keys()), len(texts) - len(pairs)
    if pairs and any(unpaired):
        _LOG.warning("%s: left out %d images without a .txt and %d .txt without an image", folder, *unpaired)
    rows = []
    for image, path in pairs.values():
        if path.suffix.lower() == ".json":
            entry = parse_json(read_text(path), path, "give an object with a caption")
            captions = _captions_in(entry, f"{path}")
        else:
            captions = [line.strip() for line in read_text(path).split("\n") if line.strip()]
        rows.append(
            Row(path.relative_to(folder).as_posix(), image.relative_to(folder).as_posix(), tuple(captions or [""]))
        )
    return rows
