"""SPICE, computed by its authors' Java program with Stanford's parser, which users download.

Sources: Anderson et al., "SPICE: Semantic Propositional Image Caption Evaluation", 2016; pycocoevalcap 1.2 for the
program and its options.
"""

import json
import math
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from legenda.errors import ConfigError, DataError, LegendaError
from legenda.io import verified
from legenda.metrics.java import JAVA_OPTIONS, find_java, find_program, java_version
from legenda.metrics.java import VARIABLE as JAVA_VARIABLE
from legenda.metrics.spice_jars import find_jars, has_script_engine

_MAIN = "edu.anu.spice.SpiceScorer"
_FIRST_JAVA_WITHOUT_ENGINE = 15
# Packages that the program's serializer reads by reflection, which Java forbids from release 16 on.
_OPENED = ("java.lang", "java.math", "java.util", "java.util.concurrent", "java.net", "java.text")


@dataclass(frozen=True)
class SpiceScores:
    """SPICE of a corpus and of each image, in 0..1, and the F score of each category of propositions.

    A value is None where neither the caption nor the references contain such a proposition. SPICE of the corpus is the
    mean over the images that have a value, or None.
    """

    corpus: float | None
    per_image: list[float | None]
    categories: dict[str, list[float | None]]


class Spice:
    """The SPICE program with the jars of a folder; each call of `score` runs it once.

    jars: a folder with the two jars of Stanford CoreNLP 3.6.0 and, for Java 15 and later, those of a JavaScript engine
        (Rhino), as `download_jars` fills it; by default the folder in LEGENDA_SPICE_JARS.
    cache: a folder for parsed captions, reused by later runs, or None.
    timeout: seconds after which a run is killed.
    Raise ConfigError naming what is missing and how to get it.
    """

    def __init__(
        self, jars: str | Path | None = None, *, cache: str | Path | None = None, timeout: float = 14_400.0
    ) -> None:
        self.jars, self.cache, self.timeout = find_jars(jars), cache, timeout
        self.program = find_program("SPICE", "spice/spice-1.0.jar")
        self.java = find_java()
        self.version = java_version(self.java)
        if self.version >= _FIRST_JAVA_WITHOUT_ENGINE and not has_script_engine(self.jars):
            raise ConfigError(
                f"SPICE needs a JavaScript engine, which Java {self.version} lacks; download Rhino with: legenda score "
                f"--download-spice {self.jars}, or set {JAVA_VARIABLE} to a Java from 8 to 14, which has one"
            )

    def command(self, captions: Path, out: Path) -> list[str]:
        """Return the command that scores the JSON file `captions` and writes the JSON file `out`."""
        opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED] if self.version > 8 else []
        classes = (self.program, self.program.parent / "lib" / "*", self.jars / "*")
        cache = [] if self.cache is None else ["-cache", str(self.cache)]
        options = [*cache, "-out", str(out), "-subset", "-silent"]
        return [
            *(str(self.java), *opened, "-Xmx8G", *JAVA_OPTIONS, f"-Djava.io.tmpdir={out.parent}"),
            *("-cp", os.pathsep.join(map(str, classes)), _MAIN, str(captions), *options),
        ]

    def score(self, candidates: Sequence[str], references: Sequence[Sequence[str]]) -> SpiceScores:
        """Score one caption an image against its references, all of them PTB tokens joined by spaces.

        Raise LegendaError where the program fails, takes too long, or omits an image.
        """
        images = [
            {"image_id": number, "test": candidate, "refs": list(group)}
            for number, (candidate, group) in enumerate(zip(candidates, references, strict=True))
        ]
        with tempfile.TemporaryDirectory(prefix="legenda-spice-") as folder:
            captions, out = Path(folder, "captions.json"), Path(folder, "scores.json")
            captions.write_text(json.dumps(images), encoding="utf-8")
            if self.cache is not None:
                Path(self.cache).mkdir(parents=True, exist_ok=True)
            self._run(self.command(captions, out))
            return parse_spice(
                verified(lambda: json.loads(out.read_text(encoding="utf-8")), "SPICE's output", "try again"),
                len(images),
            )

    def _run(self, command: Sequence[str]) -> None:
        try:
            done = subprocess.run(command, capture_output=True, timeout=self.timeout, check=False)
        except subprocess.TimeoutExpired:
            raise LegendaError(
                f"SPICE took more than {self.timeout:g} seconds and was killed; score fewer images"
            ) from None
        except OSError as error:
            raise LegendaError(f"{self.java} does not start ({error.strerror}); set {JAVA_VARIABLE}") from error
        if done.returncode != 0:
            lines = (done.stderr + done.stdout).decode("utf-8", "replace").splitlines()
            reason = next((line.strip() for line in lines if "Exception" in line or "Error" in line), "no reason given")
            raise LegendaError(f"SPICE exited with code {done.returncode} ({reason}); correct this and try again")


def parse_spice(results: Any, images: int) -> SpiceScores:
    """Parse the program's output for images numbered from 0: a list of `image_id` and `scores` by category.

    Values that are not finite become None. Raise DataError for a missing image and for another layout.
    """
    try:
        scores: Mapping[int, Mapping[str, Any]] = {int(entry["image_id"]): entry["scores"] for entry in results}
        ordered = [scores[number] for number in range(images)]
        names = sorted({name for entry in ordered for name in entry} - {"All"})
        overall = [_finite(entry["All"]["f"]) for entry in ordered]
        categories = {
            name: [_finite(entry[name]["f"]) if name in entry else None for entry in ordered] for name in names
        }
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"SPICE's output lacks a score ({error!r}); try again") from error
    known = [value for value in overall if value is not None]
    return SpiceScores(float(np.mean(known)) if known else None, overall, categories)  # NumPy's sum, as pycocoevalcap


def _finite(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None
