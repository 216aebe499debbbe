"""Refuse to write the output of a command over what it reads."""

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from legenda.io import check_output
from legenda.run_files import CONFIG, RUN_FILES, evaluation_file


def check_out(options: Any, command: str) -> None:
    """Raise DataError where --out is a file that the command reads.

    These are the files that other options name, those of a folder or a run that one names, and the data of the run.
    The evaluations of a run do not count for `evaluate`, which writes them.
    """
    out = getattr(options, "out", None)
    if isinstance(out, Path) and out.is_file() and out.suffix != ".html":  # which no command reads
        check_output(out, (file for path in _named(options) for file in _files(path, command)))


def _named(options: Any) -> Iterator[Path]:
    """Yield the paths that the fields of options other than `out` name, also in tuples and dataclasses."""
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        for part in value if isinstance(value, tuple) else (value,):
            if dataclasses.is_dataclass(part):
                yield from _named(part)
            elif isinstance(part, str | Path) and field.name != "out":
                yield Path(part)


def _files(path: Path, command: str, *, is_data: bool = False) -> Iterator[Path]:
    """Yield a file, or the files of a folder and, where it is that of a run, those of its data."""
    from legenda.features.hdf5 import split_kind
    from legenda.run_config import read_config

    if not path.is_dir():
        yield split_kind(path)[0]
    elif is_data or not (path / CONFIG).is_file():
        yield from path.iterdir()
    else:
        names = (*RUN_FILES, *(() if command == "evaluate" else [evaluation_file("*")]))
        yield from (file for name in names for file in path.glob(name.replace("{}", "*")))
        for text in _texts(read_config(path).get("data", {})):
            yield from _files(path / text, command, is_data=True)


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts in a part of a configuration."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(part)
