"""Options of a command: a configuration filled from the command line by tyro, and checked against what is read."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout, suppress
from functools import cache
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_origin

import tyro
from pydantic import AfterValidator, Field, create_model
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from legenda.config import Config, descriptions, map_paths
from legenda.errors import OF_TRANSFORMERS, ConfigError, DataError, LegendaError
from legenda.io import IMAGE_SUFFIXES, VIDEO_SUFFIXES, check_output, check_writable, follow_links
from legenda.run_folder import CONFIG, EVALUATIONS, RUN_FILES, read_config
from legenda.terminal import unguarded

T = TypeVar("T")


def _json_file(path: Path) -> Path:
    if path.suffix.lower() not in ("", ".json"):
        raise ValueError(f"{path} would hold JSON; name a file that ends in .json")
    return path


JsonFile = Annotated[Path, AfterValidator(_json_file)]
"""A file of results that a command writes."""

Flat = tyro.conf.OmitArgPrefixes
"""Marks a field whose own fields are options of the command; it holds the settings of a function of the library."""
Arguments = tyro.conf.PositionalRequiredArgs
"""Marks such a field whose own required fields are arguments without a name."""

_POSITIONAL = tyro.conf.Positional[Any].__metadata__[0]


@cache
def _search_options() -> type[Config]:
    """Return options with the names, types and descriptions of fields of `GenerationConfig`, none of which are set."""
    from legenda.runtime.settings import OVERRIDES, GenerationConfig

    fields: dict[str, Any] = {}
    texts = descriptions(GenerationConfig)
    hint = tyro.conf.arg(help_behavior_hint="(default: the model's)")
    for name in OVERRIDES:
        field = GenerationConfig.model_fields[name]
        kind, default = field.rebuild_annotation(), False if field.annotation is bool else None
        kind = kind if default is False else Annotated[kind | None, hint]
        fields[name] = (kind, Field(default, description=texts[name]))
    doc = "How captions are searched for; what is left out is the model's own."
    return create_model("SearchOptions", __base__=Config, __doc__=doc, **fields)


def _search() -> Callable[[Config], Mapping[str, object]]:
    """Return the function that tyro calls with the options of the search."""
    from legenda.runtime.settings import check_overrides

    kind = _search_options()

    def overrides(search: Config = kind()) -> Mapping[str, object]:  # noqa: B008 - tyro's default
        """Return the options that are set; raise ConfigError where they do not go together."""
        return check_overrides({name: value for name, value in search if value is not None and value is not False})

    overrides.__annotations__["search"] = Annotated[kind, tyro.conf.arg(name=""), Flat]
    return overrides


def search_arguments(search: Mapping[str, object]) -> list[str]:
    """Return the options of the command line that set a search."""
    arguments = list[str]()
    for name, value in search.items():
        words = value if isinstance(value, tuple) else () if value is True else (value,)
        arguments += [f"--{name.replace('_', '-')}", *map(str, words)]
    return arguments


Search = Annotated[Mapping[str, object], tyro.conf.arg(constructor_factory=_search), Flat]
"""A field of a command's options with what is set over a model's generation config, by name."""


def parse(options: type[T], arguments: Sequence[str], command: str) -> T:
    """Return the options of `legenda COMMAND` as an instance of `options`.

    --help prints the examples and the usual options where the class names some, --help-all all options; both exit with
    code 0. tyro prints mistakes, which exit with code 2. Raise ConfigError for a value out of bounds and for a device
    that this machine does not have.
    """
    if {"-h", "--help"} & {*arguments} and hasattr(options, "usual"):
        print(_short_help(options, command))
        raise SystemExit(0)
    arguments = ["--help" if argument == "--help-all" else argument for argument in arguments]
    for argument in arguments:
        name = argument.removeprefix("--").partition("=")[0].replace("-", "_")
        if argument.startswith("--") and name in OF_TRANSFORMERS:
            ours = OF_TRANSFORMERS[name].replace("_", "-")
            raise ConfigError(f"there is no option {argument}; did you mean --{ours}?")
    arguments = separate_positionals(options, arguments)
    with redirect_stdout(unguarded(sys.stdout)):  # tyro colors the help by ANSI sequences
        values = tyro.cli(options, args=list(arguments), prog=f"legenda {command}")
    _check_out(values, command)
    out = str(dict(_values_of(values)).get("out") or "")
    if out != out.encode(errors="surrogateescape").decode(errors="replace"):
        raise ConfigError("--out is not UTF-8, which the files of a run could not name; name another output")
    compute: Any = getattr(values, "compute", values)
    if hasattr(compute, "resolve") and compute.device not in ("auto", "cpu"):  # which every machine has
        compute.resolve()
    return values


def separate_positionals(options: Any, arguments: Sequence[str]) -> list[str]:
    """Return the arguments with the files of the command first, so that no option of several words takes them.

    Such an option, as --must, ends at the first further word that is a path, a pattern, a URL or the name of an image;
    where the command needs files and has none, at the first that exists. Raise ConfigError where an option has taken
    all words.
    """
    fields = fields_of(options) if hasattr(options, "model_fields") else {}
    positional = [name for name, field in fields.items() if _POSITIONAL in field.metadata]
    sizes = {}
    for name, field in fields.items():
        kinds = {get_origin(part) or part for part in (field.annotation, *get_args(field.annotation))}
        option = next((part.name for part in field.metadata if getattr(part, "name", None)), name)
        appends = tyro.conf.UseAppendAction in field.metadata
        sizes[f"--{option.replace('_', '-')}"] = 0 if bool in kinds else 99 if tuple in kinds and not appends else 1
        sizes[f"--no-{option.replace('_', '-')}"] = 0
    needed = any(fields[name].is_required() for name in positional)

    def separate(is_file: Callable[[str], bool]) -> tuple[list[str], list[str], list[str]]:
        files, rest, taken, left = list[str](), list[str](), list[str](), 0
        for argument in arguments:
            if argument.startswith("--"):
                left = 0 if "=" in argument else sizes[argument.replace("_", "-")]
                rest.append(argument)
                taken = [argument] if left > 1 else taken
            elif left == 0 or (1 < left < 99 and is_file(argument) and not _is_path(rest[-1])):  # it takes no paths
                left = 0
                files.append(argument)
            else:
                left -= 1
                rest.append(argument)
                taken += [argument] if left > 1 else []
        return files, rest, taken

    if any(a.startswith("--") and a.partition("=")[0].replace("_", "-") not in sizes for a in arguments):
        return list(arguments)  # tyro names what is unknown
    files, rest, taken = separate(_is_path)
    if needed and not files:
        files, rest, taken = separate(lambda word: bool(Path(word).suffix) or Path(word).exists())
    if needed and not files and len(taken) > 2:
        raise ConfigError(
            f"{taken[0]} has taken {', '.join(taken[1:])}; name the {positional[0]} before it, as in legenda ... "
            f"{taken[-1]} {taken[0]} {' '.join(taken[1:-1])}"
        )
    return [*files, *rest]


def _is_path(word: str) -> bool:
    """Return whether a word is no word of a caption: a path, a pattern, a URL, the standard input or a file's name."""
    path = Path(word)
    is_name = path.suffix.lower() in IMAGE_SUFFIXES | VIDEO_SUFFIXES or (bool(path.suffix) and path.exists())
    return word == "-" or is_name or any(sign in word for sign in "/*?")


def _short_help(options: Any, command: str) -> str:
    """Return what a command does, examples of it, and its usual options: `examples` and `usual` of the class."""
    fields, texts = fields_of(options), _described(options)
    positional = [name for name, field in fields.items() if _POSITIONAL in field.metadata]
    width = min(shutil.get_terminal_size((100, 24)).columns, 100)

    def describe(name: str) -> str:
        field = fields[name]
        described = " ".join(texts.get(name, "").split())
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


def fields_of(options: type[Config]) -> dict[str, FieldInfo]:
    """Return the fields behind all options of a command by name, those of `Flat` fields among them."""
    fields: dict[str, FieldInfo] = {}
    for name, field in options.model_fields.items():
        if any(part is Flat for part in field.metadata):
            inner = _settings_in(field)
            field.description = field.description or inner.__doc__  # else tyro reads the source of the class for it
            of_inner = fields_of(inner)
            if any(part is Arguments for part in field.metadata):
                for required in (part for part in of_inner.values() if part.is_required()):
                    required.metadata = [*required.metadata, _POSITIONAL]
            fields |= of_inner
        else:
            fields[name] = field
    return fields


def _settings_in(field: FieldInfo) -> type[Config]:
    """Return the class of the settings in a `Flat` field."""
    inner: Any = field.annotation
    return inner if isinstance(inner, type) and issubclass(inner, Config) else _search_options()


def _described(options: type[Config]) -> dict[str, str]:
    """Return the descriptions of all options of a command by name."""
    flat = (field for field in options.model_fields.values() if any(part is Flat for part in field.metadata))
    inner = (_described(_settings_in(field)) for field in flat)
    return dict(ChainMap(dict(descriptions(options)), *inner))


def _values_of(options: object) -> Iterator[tuple[str, object]]:
    """Yield the values of all options of a command, by name."""
    for name, value in vars(options).items():
        yield from _values_of(value) if isinstance(value, Config) else [(name, value)]


def _check_out(options: object, command: str) -> None:
    """Raise DataError where --out is a file that the command reads or that belongs to a run, or cannot be written.

    A command reads the files that other options name, the files of a folder or a run that an option names, and the data
    of the run. Other files in a folder of images do not count, nor do the evaluations of a run for `evaluate`.
    """
    out = dict(_values_of(options)).get("out")
    if isinstance(out, Path):
        check_writable(out, as_file=command in ("compare", "report", "score"))
    if isinstance(out, Path) and out.is_file() and out.suffix != ".html":  # which no command reads
        values = [(name, value) for name, value in _values_of(options) if name != "out"]
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
