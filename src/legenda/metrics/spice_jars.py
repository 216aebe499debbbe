"""The Java archives that SPICE needs and no Python package contains: Stanford CoreNLP and a JavaScript engine."""

import hashlib
import os
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

from legenda.errors import ConfigError, DataError, LegendaError
from legenda.io import atomic_write

VARIABLE = "LEGENDA_SPICE_JARS"
"""The environment variable with the default folder of jars."""

CORENLP_VERSION = "3.6.0"
CORENLP = (f"stanford-corenlp-{CORENLP_VERSION}.jar", f"stanford-corenlp-{CORENLP_VERSION}-models.jar")

MAVEN_CENTRAL = "https://repo.maven.apache.org/maven2"
_NLP, _RHINO = f"edu/stanford/nlp/stanford-corenlp/{CORENLP_VERSION}", "org/mozilla"
JARS = {
    f"{_NLP}/{CORENLP[0]}": "d341d5863276f55782c5ef73212222d6b3b48e02ae1951ab6de7618d28b12742",
    f"{_NLP}/{CORENLP[1]}": "d285157bd7887ee3018094b5dbae092e49088b023361ccdb550ee1daf9b2c9bd",
    f"{_RHINO}/rhino/1.7.15/rhino-1.7.15.jar": "2427fdcbc149ca0a25ccfbb7c71b01f39ad42708773a47816cd2342861766b63",
    f"{_RHINO}/rhino-engine/1.7.15/rhino-engine-1.7.15.jar": (
        "b7bbb6724812a8ba6c650cf4a1e655a24af4d73a321add5a64a54c2d5963ce00"
    ),
}
"""The files to download, by path in a Maven repository, with their SHA-256 digests. Rhino is the JavaScript engine."""

_ENGINE = "META-INF/services/javax.script.ScriptEngineFactory"
_DOWNLOAD_HINT = "download them with: legenda score --download-spice FOLDER"
_BLOCK = 1 << 20


def download_jars(
    folder: str | Path,
    *,
    url: str = MAVEN_CENTRAL,
    jars: Mapping[str, str] = JARS,
    progress: Callable[[int, int], None],
) -> list[Path]:
    """Download CoreNLP 3.6.0 and Rhino 1.7.15 (387 MB) and return the paths of the jars in `folder`.

    url: a Maven repository. jars: digests by path. progress: called with the bytes downloaded and the total of a file,
    0 where the server does not report it. A jar that is already there with its digest is not downloaded again.
    Raise LegendaError where the network fails or a file has another digest; no partial jar is written.
    """
    paths = []
    for name, digest in jars.items():
        path = Path(folder, Path(name).name)
        paths.append(path)
        if not (path.is_file() and _digest(path) == digest):
            _download(f"{url}/{name}", path, digest, progress)
    return paths


def _download(url: str, path: Path, digest: str, progress: Callable[[int, int], None]) -> None:
    import urllib.error  # imported late, since they load all of HTTP
    import urllib.request
    from http.client import HTTPException

    with atomic_write(path) as partial:
        try:
            with urllib.request.urlopen(url, timeout=60) as answer, partial.open("wb") as out:
                total, done = int(answer.headers.get("Content-Length") or 0), 0
                while block := answer.read(_BLOCK):
                    done += out.write(block)
                    progress(done, total)
        except (urllib.error.URLError, TimeoutError, ConnectionError, HTTPException, ValueError) as error:
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            raise LegendaError(
                f"{url} cannot be downloaded ({reason}); check the network, or put {path.name} into {path.parent}"
            ) from error
        if (found := _digest(partial)) != digest:
            raise DataError(f"{url} has the SHA-256 digest {found}, not {digest}; check the address or a proxy")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def find_jars(folder: str | Path | None) -> Path:
    """Return the folder of jars, by default that of LEGENDA_SPICE_JARS; raise ConfigError naming what is missing."""
    named = folder or os.environ.get(VARIABLE)
    if not named:
        raise ConfigError(
            f"SPICE needs a folder with the jars of Stanford CoreNLP {CORENLP_VERSION}; {_DOWNLOAD_HINT}, "
            f"then set {VARIABLE}"
        )
    found = Path(named)
    if missing := [name for name in CORENLP if not (found / name).is_file()]:
        raise ConfigError(f"{found} lacks {' and '.join(missing)}, which SPICE needs; {_DOWNLOAD_HINT}")
    if (version := _version(found / CORENLP[0])) != CORENLP_VERSION:
        raise ConfigError(
            f"{found / CORENLP[0]} is CoreNLP {version}, but SPICE needs {CORENLP_VERSION}; {_DOWNLOAD_HINT}"
        )
    return found


def has_script_engine(folder: Path) -> bool:
    """Return whether a jar of the folder provides a JavaScript engine."""
    return any(_ENGINE in _members(path) for path in folder.glob("*.jar"))


def _members(path: Path) -> list[str]:
    if not zipfile.is_zipfile(path):
        return []
    with zipfile.ZipFile(path) as jar:
        return jar.namelist()


def _version(jar: Path) -> str:
    try:
        with zipfile.ZipFile(jar) as opened:
            manifest = opened.read("META-INF/MANIFEST.MF").decode()
    except (OSError, zipfile.BadZipFile, KeyError, UnicodeDecodeError):
        return "of an unknown version"
    fields = dict(line.split(": ", 1) for line in manifest.splitlines() if ": " in line)
    return fields.get("Implementation-Version", "of an unknown version")
