"""The files of a run folder by name, and its config.json, read as what a stranger may have written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count, takewhile
from pathlib import Path
from typing import TypedDict, TypeVar, cast, get_origin, get_type_hints

from legenda.config import Integer, Number, get_field
from legenda.errors import CheckpointError, ConfigError, DataError
from legenda.io import check_format, check_regular, read_json

T = TypeVar("T")

PACKAGED = "photo"
"""The name of the packaged model of photographs."""
ASSETS = Path(__file__).parent / "assets"
"""The folder of what the package holds beside its code."""

CONFIG = "config.json"
"""The recipe of a run with every field: name, task, model, data and stages; and what else belongs to its model."""
WEIGHTS = "model.safetensors"
"""The weights of the best model."""
STAGE_WEIGHTS = "model_stage{}.safetensors"
"""The best weights of a stage before the last, counted from 1, with which the next stage began."""
VOCABULARY = "vocabulary.txt"
ANSWERS = "answers.txt"
"""The answers of a model for visual question answering."""
SUBWORDS = "subwords.model"
"""The subword segmentation of a translator."""
STATE = "training_state.safetensors"
"""The state from which a stopped training resumes."""
HISTORY = "metrics.jsonl"
"""Losses and scores, one record a line."""
TRACE = "trace.json"
"""The operations of some steps of training, as PyTorch's profiler writes them."""

EVALUATIONS = "evaluation_*.json"
"""Predictions and scores of all splits, as a pattern."""
RUN_FILES = (CONFIG, WEIGHTS, STAGE_WEIGHTS, VOCABULARY, ANSWERS, SUBWORDS, STATE, HISTORY, TRACE)
"""All files of a run folder but its evaluations."""


def weights_path(folder: Path, stage: int | None = None) -> Path:
    """Return the path of the weights of a run, or of one of its earlier stages, counted from 1."""
    return folder / (WEIGHTS if stage is None else STAGE_WEIGHTS.format(stage))


def find_seeds(folder: Path) -> list[Path]:
    """Return the runs seed0, seed1 and so on that `legenda train --seeds` wrote into a folder, by their numbers."""
    runs = {path: path.name.removeprefix("seed") for path in folder.glob("seed*") if (path / CONFIG).is_file()}
    return sorted((path for path, number in runs.items() if number.isdecimal()), key=lambda path: int(runs[path]))


def shortest_names(folders: Sequence[Path]) -> list[str]:
    """Return the shortest ends of paths that tell the folders apart.

    Raise ConfigError for a repeated folder, and where there is none.
    """
    if not folders:
        raise ConfigError("name at least one model, such as photo or runs/demo/ngsan")
    parts = [path.parts for path in folders]
    if len(set(parts)) < len(parts):
        raise ConfigError("one run folder is named twice; name each once")
    length = next(n for n in range(1, max(map(len, parts)) + 1) if len({p[-n:] for p in parts}) == len(parts))
    return ["/".join(p[-length:]) for p in parts]


def evaluation_path(folder: Path, split: str, *, ensemble: bool = False, stage: int | None = None) -> Path:
    """Return the path of predictions and scores of a split; those of an ensemble are in the folder of the first run.

    stage: the stage of the model, counted from 1; None for the last.
    """
    stem = f"evaluation_{split}" if stage is None else f"evaluation_{split}_stage{stage}"
    return folder / f"{stem}_ensemble.json" if ensemble else folder / f"{stem}.json"


def stage_name(index: int) -> str:
    """Return the name of a stage in a recipe and in config.json: training, fine_tuning, stage_3, ..."""
    return ("training", "fine_tuning")[index] if index < 2 else f"stage_{index + 1}"


def name_stages(stages: Iterable[T]) -> dict[str, T]:
    """Return stages by their names in a recipe and in config.json."""
    return {stage_name(index): stage for index, stage in enumerate(stages)}


def stages_of(config: Mapping[str, object]) -> dict[str, Mapping[str, object]]:
    """Return the stages of a recipe or of config.json by their names, in order; raise ConfigError for one that is no
    table.
    """
    stages = {}
    for name in takewhile(config.__contains__, map(stage_name, count())):
        if not isinstance(stage := config[name], Mapping):
            raise ConfigError(f"{name} must be a table of options, not {stage!r:.80}")
        stages[name] = stage
    return stages


@contextmanager
def as_checkpoint_error() -> Iterator[None]:
    """Raise CheckpointError instead of the DataError of a reader of files."""
    try:
        yield
    except DataError as error:
        raise CheckpointError(str(error)) from error


class RunConfig(TypedDict, total=False):
    """The parts of config.json besides the stages; what reads a part checks what it holds."""

    name: str
    summary: str
    task: str
    model: dict[str, object]
    data: dict[str, object]
    init_from: str
    extractor: str | dict
    environment: dict[str, str | None]
    vocabulary: str
    consensus: Number
    format_version: Integer
    generation_config: dict[str, object]
    imported: dict[str, object]


def read_config(folder: Path, hint: str = "a folder of a model holds it; save or train the model again") -> RunConfig:
    """Return the configuration of a folder, without the parts that are null.

    Raise DataError with the `hint` where it cannot be read, and CheckpointError where it is none or has a part of
    another type than Legenda writes.
    """
    path = folder / CONFIG
    if folder.is_dir():
        check_regular(*folder.iterdir())  # before a library opens one of them
    content = read_json(path, hint)
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} is not the configuration of a run; {hint}")
    content = {name: part for name, part in content.items() if part is not None}
    with as_checkpoint_error():  # first: another version may have parts of other types
        environment = content.get("environment")
        writer = environment.get("legenda") if isinstance(environment, dict) else None
        check_format(path, content.get("format_version"), writer)
        stages = takewhile(content.__contains__, map(stage_name, count()))
        for name, kind in (get_type_hints(RunConfig, include_extras=True) | dict.fromkeys(stages, dict)).items():
            if name in content:
                get_field(content, name, dict if get_origin(kind) is dict else kind, path, hint)
        if (environment or {}).get("folder") is not None:
            get_field(environment, "folder", str, f"the environment of {path}", hint)
    return cast(RunConfig, content)


def split_model(config: RunConfig, folder: Path) -> tuple[str, dict[str, object]]:
    """Return the name of the model in a configuration, and its options; raise CheckpointError where it has none."""
    options = dict(config.get("model", {}))
    if not isinstance(name := options.pop("name", None), str):
        raise CheckpointError(f'{folder / CONFIG} has no usable "model" part with a name; give the folder of a model')
    if isinstance(options.get("options"), dict):
        raise CheckpointError(f"{folder / CONFIG} is of an earlier version of Legenda; save or train the model again")
    return name, options
