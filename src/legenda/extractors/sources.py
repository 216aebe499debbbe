"""The sources of images on the command line: files, folders, patterns, standard input and, if allowed, URLs."""

import sys
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from legenda.errors import ConfigError, DataError
from legenda.extractors.images import find_images

_URL = ("http://", "https://")
_MAX_DOWNLOAD_BYTES = 64 << 20
_DOWNLOAD_TIMEOUT_S = 20


@contextmanager
def open_image_sources(
    names: Sequence[str], failures: list[str], *, allow_urls: bool
) -> Iterator[list[tuple[str, Path]]]:
    """Yield the name and path of each image; downloaded files are removed on exit.

    "-" stands for the lines of standard input. The reason why a URL cannot be fetched is appended to `failures`.
    Raises DataError for paths that do not exist, and ConfigError for a URL where they are not allowed.
    """
    expanded = [name for entry in names for name in (_read_stdin() if entry == "-" else [entry])]
    urls = [name for name in expanded if name.startswith(_URL)]
    if urls and not allow_urls:
        raise ConfigError(f"{urls[0]} is a URL; add --allow-urls to download it")
    if names and not expanded:
        raise ConfigError("the standard input names no image; write one file, folder or pattern per line")
    with TemporaryDirectory(prefix="legenda-") as folder:
        sources: list[tuple[str, Path]] = []
        if not urls:
            sources = [(str(path), path) for path in find_images(expanded)]
        else:
            for number, name in enumerate(expanded):
                if not name.startswith(_URL):
                    sources += [(str(path), path) for path in find_images([name])]
                    continue
                try:
                    sources.append((name, _download(name, Path(folder, str(number)))))
                except DataError as error:
                    failures.append(str(error))
        yield sources


def _read_stdin() -> list[str]:
    return [line.strip("\r\n") for line in sys.stdin if line.strip()]


def _download(url: str, folder: Path) -> Path:
    folder.mkdir()
    path = folder / (url.split("?")[0].rstrip("/").rpartition("/")[2][-100:] or "image")
    try:
        with urllib.request.urlopen(url, timeout=_DOWNLOAD_TIMEOUT_S) as response:
            content = response.read(_MAX_DOWNLOAD_BYTES + 1)
    except (OSError, ValueError) as error:
        raise DataError(f"{url} cannot be fetched ({error}); download the image and name the file") from error
    if len(content) > _MAX_DOWNLOAD_BYTES:
        raise DataError(f"{url} is larger than {_MAX_DOWNLOAD_BYTES >> 20} MiB; download it and scale it down")
    path.write_bytes(content)
    return path
