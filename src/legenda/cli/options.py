"""Options of a command: a configuration filled from the command line by tyro, and checked against what is read."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Any, TypeVar

import tyro
from pydantic_core import PydanticUndefined

from legenda.compute import ComputeOptions
from legenda.config import map_paths
from legenda.errors import OF_TRANSFORMERS, ConfigError, DataError, LegendaError
from legenda.io import check_output, check_writable, follow_links
from legenda.run_folder import CONFIG, EVALUATIONS, RUN_FILES, read_config
from legenda.terminal import unguarded

T = TypeVar("T")


def parse(options: type[T], arguments: Sequence[str], command: str) -> T:
    """Return the options of `legenda COMMAND` as an instance of `options`.

    --help prints the examples and the usual options where the class names some, --help-all all options; both exit with
    code 0. tyro prints mistakes, which exit with code 2. Raise ConfigError for a value out of bounds and for a device
    that this machine does not have.
    """
    if {"-h", "--help"} & {*arguments} and hasattr(options, "usual"):
        print(short_help(options, command))
        raise SystemExit(0)
    arguments = ["--help" if argument == "--help-all" else argument for argument in arguments]
    for argument in arguments:
        name = argument.removeprefix("--").partition("=")[0].replace("-", "_")
        if argument.startswith("--") and name in OF_TRANSFORMERS:
            ours = OF_TRANSFORMERS[name].replace("_", "-")
            raise ConfigError(f"there is no option {argument}; did you mean --{ours}?")
    with redirect_stdout(unguarded(sys.stdout)):  # tyro colors the help by ANSI sequences
        values = tyro.cli(options, args=list(arguments), prog=f"legenda {command}")
    check_out(values, command)
    if isinstance(values, ComputeOptions) and values.device not in ("auto", "cpu"):  # which every machine has
        values.resolve()
    return values


def short_help(options: Any, command: str) -> str:
    """Return what a command does, examples of it, and its usual options: `examples` and `usual` of the class."""
    fields = options.model_fields
    positional = [name for name, field in fields.items() if tyro.conf.Positional[Any].__metadata__[0] in field.metadata]
    width = min(shutil.get_terminal_size((100, 24)).columns, 100)

    def describe(name: str) -> str:
        field = fields[name]
        described = " ".join((field.description or "").split())
        if field.default not in (None, False, True, (), PydanticUndefined):
            described += f" (default: {' '.join(field.default) if isinstance(field.default, tuple) else field.default})"
        option = next((part.name for part in field.metadata if getattr(part, "name", None)), name).replace("_", "-")
        label = name.upper() if name in positional else f"--{option}"
        return textwrap.fill(described, width, initial_indent=f"  {label:<20}  ", subsequent_indent=" " * 24)

    about = textwrap.fill(" ".join(options.__doc__.partition("\n\n")[0].split()), width)
    lines = [f"usage: legenda {command} {' '.join(name.upper() for name in positional)} [OPTIONS]", "", about, ""]
    lines += ["examples:", *(f"  legenda {command} {example}" for example in options.examples), ""]
    lines += ["usual options:", *(describe(name) for name in (*positional, *options.usual)), ""]
    return "\n".join([*lines, f"legenda {command} --help-all lists all {len(fields)} options."])


def check_out(options: Any, command: str) -> None:
    """Raise DataError where --out is a file that the command reads.

    These are the files that other options name, those of a folder or a run that one names, and the data of the run.
    Folders of images may hold other files too, and the evaluations of a run do not count for `evaluate`. Raise it, too,
    where it is a file of a run, and where nothing can be written there.
    """
    out = getattr(options, "out", None)
    if isinstance(out, Path):
        check_writable(out, as_file=command in ("compare", "report", "score"))
    if isinstance(out, Path) and out.is_file() and out.suffix != ".html":  # which no command reads
        values = [(name, value) for name, value in vars(options).items() if name != "out"]
        paths = [(name, path) for name, value in values for path in (value if isinstance(value, tuple) else (value,))]
        read = ((name, Path(path)) for name, path in paths if isinstance(path, str | Path))
        check_output(out, (file for name, path in read for file in _files(name, path, command)))
        file = follow_links(out)
        of_run = (file.parent / CONFIG).is_file()
        if of_run and any(file.match(pattern.replace("{}", "*")) for pattern in RUN_FILES):
            raise DataError(f"{out} belongs to the run {file.parent}; name another file to write")


def _files(name: str, path: Path, command: str) -> Iterator[Path]:
    """Yield the files that a command reads from a path in the option `name`, or in the part "data" of a run."""
    from legenda.data.registry import data_settings  # late, as it imports NumPy
    from legenda.features.readers import split_kind
    from legenda.images.files import is_image_name

    if not path.is_dir():
        yield split_kind(path)[0]
    elif name == "data" or not (path / CONFIG).is_file():
        yield from (file for file in path.iterdir() if "image" not in name or is_image_name(file.name, "image"))
    else:
        patterns = (*RUN_FILES, *(() if command == "evaluate" else [EVALUATIONS]))
        yield from (file for pattern in patterns for file in path.glob(pattern.replace("{}", "*")))
        paths: list[Path] = []
        if "data" in (config := read_config(path)):
            with suppress(LegendaError):  # the command itself names what is wrong with them
                map_paths(data_settings(config, path), lambda file: paths.append(file) or file)
        for file in paths:
            yield from _files("data", file, command)
