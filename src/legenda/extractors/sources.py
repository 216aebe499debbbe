"""Sources of images and videos: files, folders, patterns, the standard input and, where they are allowed, URLs."""

from __future__ import annotations

import glob
import http.client
import logging
import os
import re
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from legenda.errors import ConfigError, DataError, import_extra

Medium = Literal["image", "video"]
SUFFIXES: dict[Medium, frozenset[str]] = {
    "image": frozenset(
        {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".heic", ".heif", ".hif", ".avif"}
    ),
    "video": frozenset({".mp4", ".m4v", ".mkv", ".webm", ".avi", ".mov", ".mpg", ".mpeg"}),
}
"""What is taken of folders and patterns."""
_NAMED = 5
"""The names of other files that a message gives."""
MAX_FETCHED_BYTES = 64 << 20
FETCH_TIMEOUT_S = 20
FETCH_PAUSES_S = (1.0, 2.0)
"""The waits before a second and a third attempt."""
_LOG = logging.getLogger(__name__)
_URL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://")
_PERMANENT = (FileNotFoundError, ConfigError, ValueError, http.client.InvalidURL)
_WEB = ("http://", "https://")


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
        sorted(_list_source(source, medium, allow_urls), key=_sort_key) for source in _with_standard_input(sources)
    )
    return list(dict.fromkeys(name for names in named for name in names))


def list_images(sources: Iterable[str], medium: Medium = "image", *, allow_urls: bool = False) -> Iterator[str]:
    """Yield what `find_names` returns in no order, possibly repeated; the names of a folder are not held in memory."""
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


def fetch(url: str) -> bytes:
    """Return the content of a URL of http, https or an object store; an attempt that fails is repeated after a pause.

    Raise DataError where it does not exist, cannot be fetched in three attempts, or has over MAX_FETCHED_BYTES.
    """
    content = b""
    for pause in (*FETCH_PAUSES_S, None):
        try:
            content = _fetch_web(url) if url.startswith(_WEB) else _fetch_store(url)
            break
        except Exception as error:  # http.client's and fsspec's errors have no common base class
            refused = isinstance(error, urllib.error.HTTPError) and error.code < 500 and error.code != 429
            if pause is None or refused or isinstance(error, _PERMANENT):
                reason = (str(error).splitlines() or [type(error).__name__])[0]
                raise DataError(
                    f"{url} cannot be fetched ({reason}); check the address and your credentials, or leave it out"
                ) from error
            time.sleep(pause)
    if len(content) > MAX_FETCHED_BYTES:
        raise DataError(f"{url} is larger than {MAX_FETCHED_BYTES >> 20} MiB; scale it down or leave it out")
    return content


def _fetch_web(url: str) -> bytes:
    escaped = quote(url, safe="%/:=&?~#+!$,;'@()*[]")
    with urllib.request.urlopen(escaped, timeout=FETCH_TIMEOUT_S) as response:
        return response.read(MAX_FETCHED_BYTES + 1)


def _fetch_store(url: str) -> bytes:
    system, name = import_extra("fsspec", "ray").core.url_to_fs(url)
    with system.open(name, "rb") as file:
        return file.read(MAX_FETCHED_BYTES + 1)


def _sort_key(name: str) -> str | Path:
    return name if is_url(name) else Path(name)


def _with_standard_input(sources: Iterable[str]) -> Iterator[str]:
    for source in sources:
        if source != "-":
            yield source
            continue
        lines = filter(None, (line.strip("\r\n") for line in sys.stdin))
        first = next(lines, None)
        if first is None:
            raise DataError("the standard input names no image; write one file, folder or pattern a line")
        yield from chain([first], lines)


def _list_source(source: str, medium: Medium, allow_urls: bool) -> Iterator[str]:
    """Yield the images of one source; a URL is one where it is of http or https, or has the suffix of an image.

    Any other URL is a folder of an object store.
    """
    if not allow_urls:
        reject_url(source)
    try:
        if not is_url(source):
            yield from _list_path(source, medium)
        elif source.startswith(_WEB) or is_image_name(source.split("?")[0], medium):
            yield source
        else:
            yield from _require(source, _in_store(source, medium), medium)
    except OSError as error:
        reason = error.strerror or error
        raise DataError(
            f"{source} cannot be listed ({reason}); check the name and the permission to read it"
        ) from error


def _list_path(source: str, medium: Medium) -> Iterator[str]:
    if Path(source).is_file():
        yield source
    elif Path(source).is_dir():
        yield from _require(source, _in_folder(source, medium), medium)
    elif glob.has_magic(source):
        names = glob.iglob(source, recursive=True)  # noqa: PTH207 - takes absolute patterns too
        files = (name for name in names if is_image_name(name, medium) and Path(name).is_file())
        yield from _require(source, files, medium)
    else:
        example = "*.jpg" if medium == "image" else "*.mp4"
        raise DataError(f"{source} does not exist; name files, folders of {medium}s or a pattern such as '{example}'")


def _require(source: str, images: Iterator[str], medium: Medium) -> Iterator[str]:
    """Return the images; raise DataError where there is none."""
    first = next(images, None)
    if first is None:
        raise DataError(f"{source} holds no {medium}; name files of these types: {', '.join(sorted(SUFFIXES[medium]))}")
    return chain([first], images)


def _in_folder(folder: str, medium: Medium) -> Iterator[str]:
    """Yield the images below a folder; name other files in a warning, except those with a leading dot."""
    pending, skipped, others = [folder], list[str](), 0
    while pending:
        current = pending.pop()
        try:
            with os.scandir(current) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
                    elif is_image_name(entry.name, medium) and entry.is_file():
                        yield entry.path
                    elif not entry.name.startswith("."):
                        others += 1
                        skipped = sorted([*skipped, entry.name])[:_NAMED]
        except OSError as error:
            raise DataError(
                f"{current} cannot be listed ({error.strerror}); check the permission to read it"
            ) from error
    if others:
        rest = f" and {others - len(skipped)} more" if others > len(skipped) else ""
        _LOG.warning("%s: left out %d files that are no %ss: %s%s", folder, others, medium, ", ".join(skipped), rest)


def _in_store(url: str, medium: Medium) -> Iterator[str]:
    """Yield the images of a folder tree in an object store; the names of one folder are held in memory."""
    try:
        system, root = import_extra("fsspec", "ray").core.url_to_fs(url)
        for folder, _, files in system.walk(root, on_error="raise"):
            for name in files:
                if is_image_name(name, medium):
                    yield system.unstrip_protocol(f"{folder}/{name}")
    except ConfigError:
        raise
    except Exception as error:  # fsspec's stores have no common base class of errors
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(f"{url} cannot be listed ({reason}); check the address and your credentials") from error
