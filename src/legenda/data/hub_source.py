"""A stranger's data set, opened by the library `datasets` so that it reads nothing outside of its own files.

Opened are: the files of the repository or folder that the user names, of the formats in `_FORMATS`; and for the image
column bytes, regular files in that folder (or members of its .zip files), and with `allow_urls` http and https.
"""

from __future__ import annotations

import glob
import hashlib
import logging
import os
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn

from legenda.errors import DataError, LegendaError, did_you_mean, first_line, import_extra
from legenda.images.web import MAX_FETCHED_BYTES, fetch, is_web_url
from legenda.io import file_digest, open_regular, read_text, verified
from legenda.terminal import shorten

_FORMATS = ("parquet", "arrow", "csv", "json", "imagefolder", "webdataset")
"""The modules of `datasets` that may read a data set's files."""
_CARDS = ("README.md", ".huggingface.yaml")
"""The files in which a data set names its configurations."""
_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
_SAMPLED_BYTES = 256 << 20
"""Bytes of all files that the digest of a data set covers; of larger ones, blocks at equal distances."""
_HINT = "name a data set of Hugging Face's hub, a folder or parquet files"


@dataclass(frozen=True, eq=False)
class HubSource:
    """An open data set.

    name: for messages. root: its folder, or hf://datasets/NAME@COMMIT. caches: further folders from which `datasets`
    reads what it has downloaded or unpacked. parts: its splits by name. files: the files that it consists of. digest:
    of their content (a sample of large ones), or of their addresses with the commit.
    """

    name: str
    root: str
    caches: tuple[str, ...]
    parts: Mapping[str, Any]
    files: tuple[str, ...]
    digest: str

    def columns(self, part: str) -> list[str]:
        """Return the names of the columns of a part."""
        rows = self.parts[part]
        try:
            return list(rows.column_names or next(iter(rows), {}))  # without features, nothing is decoded
        except Exception as error:  # the library raises exceptions of any type
            self.fail(error)

    def check_column(self, part: str, column: str) -> None:
        """Raise DataError, naming the closest, for a column that is not there."""
        known = self.columns(part)
        if column not in known:
            raise DataError(f"{self.name} has no column {column!r}; {did_you_mean(column, known)}")

    def rows(self, part: str, columns: Sequence[str]) -> Iterator[Mapping[str, object]]:
        """Yield the rows of some columns of text and numbers; raise DataError for columns of another kind."""
        rows = self.parts[part]
        for column in columns:
            self.check_column(part, column)
            if _is_decoded((rows.features or {}).get(column)):
                raise DataError(f"the column {column!r} of {self.name} holds images or sounds; name one of text")
        try:
            yield from rows.select_columns(list(columns))
        except Exception as error:  # the library raises exceptions of any type
            self.fail(error, columns)

    def labels(self, part: str, column: str | None) -> Sequence[str] | None:
        """Return the names of the numbers in a column of classes; None for another column."""
        return getattr((self.parts[part].features or {}).get(column), "names", None)

    def images(self, part: str, column: str) -> Any:
        """Return the rows of a column of images, which are not decoded."""
        datasets = import_extra("datasets", "hub")
        try:
            rows = self.parts[part].select_columns([column])
            return rows.cast_column(column, datasets.Image(decode=False)) if rows.features else rows
        except Exception as error:  # the library raises exceptions of any type
            self.fail(error, [column])

    def read(self, value: object, *, allow_urls: bool) -> bytes:
        """Return the bytes of an image; raise DataError for a path or an address that is not to be opened."""
        content, path = (value.get("bytes"), value.get("path")) if isinstance(value, Mapping) else (value, value)
        if isinstance(content, bytes):
            return content
        if not isinstance(path, str) or not path:
            raise DataError("there is neither an encoded image nor a path")
        if is_web_url(path):
            if not allow_urls:
                raise DataError(f"{path} is an address; add --allow-urls to fetch it")
            return fetch(path)
        member, _, archive = path.rpartition("::")
        if member and not (member.startswith("zip://") and "::" not in member):
            raise DataError(f"{path} is no file of the data set")
        content = self._read_file(archive, member.removeprefix("zip://"))
        if len(content) > MAX_FETCHED_BYTES:
            raise DataError(f"{path} is larger than {MAX_FETCHED_BYTES >> 20} MiB")
        return content

    def _read_file(self, name: str, member: str) -> bytes:
        """Return the start of a file of the data set, or of a member of such a .zip file."""
        if self.root.startswith("hf://") and not Path(name).is_absolute():
            address = name if "://" in name else f"{self.root}/{name}"
            if not address.startswith(f"{self.root}/") or ".." in PurePosixPath(address).parts:
                raise DataError(f"{name} is no file of the data set")
            chain = f"zip://{member}::{address}" if member else address
            with import_extra("fsspec", "hub").open(chain, "rb") as file:
                return file.read(MAX_FETCHED_BYTES + 1)
        path = Path(self.root, name)
        if "://" in name or not any(_is_inside(path, Path(folder)) for folder in (self.root, *self.caches)):
            raise DataError(f"{name} is outside of the folder of the data set, {self.root}")
        with open_regular(path) as file:
            if not member:
                return file.read(MAX_FETCHED_BYTES + 1)
            with zipfile.ZipFile(file) as archive, archive.open(member) as inner:
                return inner.read(MAX_FETCHED_BYTES + 1)

    def fail(self, error: Exception, columns: Sequence[str] = ()) -> NoReturn:
        """Raise DataError for an error of a library, with the file at fault where it is known."""
        if isinstance(error, LegendaError):
            raise error
        tables = [file for file in self.files if file.endswith(".parquet") and "://" not in file]
        broken = next((file for file in tables if _is_broken(file, columns)), None) if len(tables) > 1 else None
        raise DataError(
            f"{broken or self.name} cannot be read ({explain(error)}); call the same command again, or "
            "download it again"
        ) from error


def explain(error: Exception) -> str:
    """Return the reason that a library gives, on one line, without the name of its class."""
    return shorten(
        getattr(error, "strerror", None) or re.sub(r"\b\w*(Error|Warning|Exception): ", "", first_line(error))
    )


def open_source(name: str | None, subset: str | None, files: Path | None, *, streaming: bool) -> HubSource:
    """Open a data set of the hub by name, or a folder or parquet files; raise DataError where that is not possible."""
    is_table = files is not None and (files.suffix == ".parquet" or glob.has_magic(str(files)))
    folder = files if files is not None else Path(str(name))
    if is_table:
        paths = _tables(folder)
    elif folder.is_dir():
        paths = _folder(folder)
    elif files is None and _HUB_NAME.fullmatch(str(name)):
        return _open(str(name), subset, None, (), streaming)
    else:
        raise DataError(f"{folder} does not exist; {_HINT}")
    stamps = tuple((str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in paths)
    return _open(str(folder), subset, is_table, stamps, streaming)


@cache
def _open(
    name: str, subset: str | None, is_table: bool | None, stamps: tuple[tuple[str, int, int], ...], streaming: bool
) -> HubSource:
    """Open a data set, once; is_table: None for one of the hub. stamps: the local files as they are now."""
    datasets: Any = import_extra("datasets", "hub")
    datasets.logging.set_verbosity(logging.CRITICAL)  # an error is told once
    root = str(_root(Path(name)).resolve())
    try:
        if is_table:
            paths = [path for path, _, _ in stamps]
            builder = datasets.load_dataset_builder("parquet", data_files=[*map(glob.escape, paths)])
        else:
            if is_table is None:
                _check_hub_cards(name)
            builder = datasets.load_dataset_builder(name if is_table is None else root, subset)
        if is_table is None:
            root = str(builder.base_path)
        opened = [str(file) for group in (builder.config.data_files or {}).values() for file in group]
        _check_builder(builder, opened, root, is_table)
        if streaming:
            parts = builder.as_streaming_dataset()
        else:
            builder.download_and_prepare()
            parts = builder.as_dataset()
    except LegendaError:
        raise
    except Exception as error:  # the library raises exceptions of any type
        raise DataError(f"{name} cannot be opened as a data set ({explain(error)}); {_HINT}") from error
    caches = () if streaming else (datasets.config.DOWNLOADED_DATASETS_PATH, _hub_cache())
    digest = hashlib.blake2b(repr((subset, [os.path.relpath(file, root) for file in opened])).encode(), digest_size=8)
    if is_table is not None:
        budget = _SAMPLED_BYTES // max(len(opened), 1)
        for file in opened:
            digest.update(file_digest(Path(file), budget))
    return HubSource(name, root, tuple(map(str, caches)), dict(parts), tuple(opened), digest.hexdigest())


def _root(path: Path) -> Path:
    """Return the folder of a data set by its path, of a pattern the one before the first special character."""
    if path.is_file():
        return path.parent
    while not path.is_dir() and path != path.parent:
        path = path.parent
    return path


def _tables(pattern: Path) -> list[Path]:
    """Return the parquet files of a path or pattern; raise DataError for one that is broken, empty or no file."""
    parquet = import_extra("pyarrow.parquet", "hub")
    names = sorted(glob.glob(str(pattern), recursive=True)) if not pattern.is_file() else [str(pattern)]  # noqa: PTH207
    if not names:
        raise DataError(f"{pattern} does not exist; {_HINT}")
    rows = 0
    for name in names:
        if not _is_plain(name):
            raise DataError(f"{name} holds :: or ://, which a file of a data set may not; rename it")
        with verified(partial(open_regular, name), name, _HINT) as file:
            table = verified(lambda: parquet.ParquetFile(file), name, "download it again")
            columns = table.schema_arrow.names
        rows += table.metadata.num_rows
        twice = next((column for column in columns if columns.count(column) > 1), None)
        if twice is not None:
            raise DataError(f"{name} has the column {twice!r} twice; write it with one")
    if not rows:
        raise DataError(f"{pattern} holds no rows; name files with images and captions")
    return [Path(name).absolute() for name in names]


def _folder(folder: Path) -> list[Path]:
    """Return the files of a folder and check that none leads out of it, nor its cards; raise DataError otherwise."""
    paths: list[Path] = []
    for name, folders, files in os.walk(folder):
        for entry in (*folders, *files):
            path = Path(name, entry)
            if path.is_symlink() and not _is_inside(path, folder):
                raise DataError(f"{path} is a link to what is outside of the data set; copy its files into the folder")
            if not (path.is_file() or path.is_dir()):
                raise DataError(f"{path} is no regular file; remove it from the data set")
            if not _is_plain(entry):
                raise DataError(f"{path} holds :: or ://, which a file of a data set may not; rename it")
        paths += (Path(name, file) for file in files)
    if not paths:
        raise DataError(f"{folder} is empty; {_HINT}")
    for card in _CARDS:
        if (folder / card).is_file():
            _check_card(folder / card, folder / card)
    return sorted(paths)


def _check_hub_cards(name: str) -> None:
    hub = import_extra("huggingface_hub", "hub")
    for card in _CARDS:
        try:
            path = hub.hf_hub_download(name, card, repo_type="dataset")
        except (hub.errors.EntryNotFoundError, hub.errors.LocalEntryNotFoundError):
            continue  # there is none, or without a connection, in which case the files are those of the cache
        _check_card(Path(path), f"{card} of {name}")


def _check_card(path: Path, name: str | Path) -> None:
    """Raise DataError where a card names files that are not of its data set."""
    yaml = import_extra("yaml", "hub")
    text = read_text(path, "repair or remove it")
    if path.suffix == ".md":
        match = re.match(r"\s*---[ \t]*\n(.*?)\n---[ \t]*(?:\n|$)", text, re.DOTALL)
        text = match[1] if match else ""
    content = verified(lambda: yaml.safe_load(text), name, "repair or remove it")
    pending, seen = [content.get("configs") if isinstance(content, dict) else None], set[int]()
    while pending:
        value = pending.pop()
        if isinstance(value, dict | list) and id(value) not in seen:
            seen.add(id(value))
            pending += value.values() if isinstance(value, dict) else value
        elif isinstance(value, str) and not _is_relative(value):
            raise DataError(f"{name} names {value}, which is no file of the data set; remove it there")


def _check_builder(builder: object, files: Sequence[str], root: str, is_table: bool | None) -> None:
    """Raise DataError where a data set is of another format, or consists of files outside of it."""
    module = type(builder).__module__.removeprefix("datasets.packaged_modules.").partition(".")[0]
    if module not in (*_FORMATS, *(("cache",) if is_table is None else ())):  # what was prepared before
        raise DataError(f"{root} holds files of the format {module}, which is none of {', '.join(_FORMATS)}")
    for file in files if not is_table else ():
        inside = file.startswith(f"{root}/") if is_table is None else _is_inside(Path(file), Path(root))
        if not inside or ".." in PurePosixPath(file).parts:
            raise DataError(f"{file} is outside of the data set {root}; remove it from its card")


def _hub_cache() -> str:
    return str(import_extra("huggingface_hub", "hub").constants.HF_HUB_CACHE)


def _is_plain(name: str) -> bool:
    return "::" not in name and "://" not in name


def _is_relative(name: str) -> bool:
    path = PurePosixPath(name)
    return _is_plain(name) and not (path.is_absolute() or ".." in path.parts or re.match(r"~|[A-Za-z][\w+.-]*:", name))


def _is_inside(path: Path, folder: Path) -> bool:
    """Return whether the file itself, links followed, is below a folder."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def _is_decoded(feature: object) -> bool:
    """Return whether the library opens what a column names: images, sounds, videos, also in lists and fields."""
    if isinstance(feature, Mapping):
        return any(map(_is_decoded, feature.values()))
    if isinstance(feature, list | tuple):
        return any(map(_is_decoded, feature))
    return hasattr(feature, "decode_example") or _is_decoded(getattr(feature, "feature", None) or ())


def _is_broken(file: str, columns: Sequence[str]) -> bool:
    """Return whether columns of a parquet file cannot be read."""
    parquet = import_extra("pyarrow.parquet", "hub")
    try:
        with open_regular(file) as stream:
            for _ in parquet.ParquetFile(stream).iter_batches(64, columns=list(columns) or None):
                pass
    except Exception:  # readers of damaged files raise exceptions of any type
        return True
    return False
