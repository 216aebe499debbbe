"""Models stored as folders: config.json, model.safetensors and the files of the vocabulary.

The vocabulary is in vocabulary.txt and, for models that answer questions, answers.txt, or, for translators,
subwords.model.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from legenda.config import get_field, merge
from legenda.decoding.generation import GenerationConfig
from legenda.errors import CheckpointError, ConfigError
from legenda.hub import find_model, is_of_transformers
from legenda.io import read_text
from legenda.models.base import Captioner, Model
from legenda.models.registry import build_model
from legenda.models.weights import check_header, load_weights
from legenda.run_folder import (
    ANSWERS,
    CONFIG,
    HISTORY,
    VOCABULARY,
    WEIGHTS,
    RunConfig,
    as_checkpoint_error,
    read_config,
    split_model,
)

_LOG = logging.getLogger(__name__)


_HINT = "a model folder holds config.json, model.safetensors and vocabulary.txt"
_SIZES = {
    "vocab_size": f"restore the {VOCABULARY} of its training",
    "answers": f"restore the {ANSWERS} of its training",
    "feature_dim": "use features of the extractor of its training",
}
"""What a model that starts from another one needs to have in common with it, and what to do otherwise."""


def load(folder: str | Path) -> Captioner:
    """Return a captioner in evaluation mode on the CPU: that of a folder, or of another name that `find_model` takes.

    Raise CheckpointError naming the file where one is missing, truncated or does not fit the others.
    """
    model = load_any(folder)
    if not isinstance(model, Captioner):
        raise not_a_captioner(folder, model)
    return model


def not_a_captioner(folder: str | Path, model: Model) -> CheckpointError:
    """Return the error about a folder with a model of another task."""
    return CheckpointError(f"{folder} holds {model.name}, which is no captioner; use legenda evaluate {folder}")


@as_checkpoint_error()
def start_from(model: Model, folder: Path) -> None:
    """Load the weights of the model in a folder, and search as it does, if it has the same name and so decoder.

    Raise CheckpointError unless both read the same vocabulary and features.
    """
    config = read_config(folder, _HINT)
    model_name, options = split_model(config, folder)
    for name, remedy in _SIZES.items():
        actual = getattr(model.config, name, None)
        if actual != (expected := options.get(name, actual)):
            raise CheckpointError(f"{folder} was trained with {name}={expected}, not {actual}; {remedy}")
    if model_name == model.name:
        with naming_file(folder / CONFIG):
            _set_generation_config(model, config, folder / CONFIG)
    load_weights(model, folder / WEIGHTS)


@contextmanager
def naming_file(path: Path) -> Iterator[None]:
    """Raise CheckpointError, naming the file, in place of ConfigError."""
    try:
        yield
    except ConfigError as error:
        raise CheckpointError(f"{path}: {error}") from error


def _set_generation_config(model: Model, config: RunConfig, path: Path) -> None:
    """Take the configuration of generation from that of a folder, for models that generate."""
    if not hasattr(model, "generation_config"):
        return
    options = get_field(config, "generation_config", dict, path, "save the model again")
    model.generation_config = merge(GenerationConfig, options, "generation_config")
    if max(model.generation_config.token_ids) >= model.config.vocab_size:
        raise ConfigError("generation_config names token ids outside the vocabulary")


def load_any(folder: str | Path) -> Model:
    """Return the model of a folder, of any task; otherwise as `load`."""
    return load_with_config(find_model(folder))[0]


@as_checkpoint_error()
def load_with_config(folder: Path) -> tuple[Model, RunConfig]:
    """Return the model of a folder and the content of its config.json; otherwise as `load`."""
    if is_of_transformers(folder):
        raise CheckpointError(f"{folder} is a model of transformers, which this command does not take; name a run")
    path, weights = folder / CONFIG, folder / WEIGHTS
    content = read_config(folder, _HINT)
    if not weights.exists() and _is_before_validation(folder):
        raise CheckpointError(
            f"{folder} has no model yet, because its training stopped before the first validation; the same `legenda "
            "train` continues it"
        )
    name, options = split_model(content, folder)
    with naming_file(path):
        model = build_on_meta(name, options)
        if model is not None:  # compared before memory is allocated for a stranger's options
            check_header(model, weights)
        if model is not None and _holds_all(model):
            # as to_empty(device="cpu"), whose empty_like imports SymPy for meta tensors, half a second
            model = model._apply(lambda tensor: torch.empty(tensor.shape, dtype=tensor.dtype))
        else:
            model = build_model(name, options)
        _set_generation_config(model, content, path)
    load_weights(model, weights)
    if content.get("vocabulary"):
        model.load_vocabulary(folder)
        assert model.vocabulary is not None
        if len(model.vocabulary) != options["vocab_size"]:
            raise CheckpointError(
                f"{folder / VOCABULARY} has {len(model.vocabulary)} tokens where {path} has vocab_size="
                f"{options['vocab_size']}; restore the vocabulary the model was trained with"
            )
        if (problem := changed_words(model, content, folder)) is not None:
            _LOG.warning(problem)
    return model.eval(), content


def _is_before_validation(folder: Path) -> bool:
    """Return whether a training has begun that has validated no model."""
    path = folder / HISTORY
    return path.exists() and '"validation"' not in read_text(path, "copy the file again or train the model again")


def changed_words(model: Model, config: RunConfig, folder: Path) -> str | None:
    """Return a warning where the words in a folder, or their order, are not those that the model was saved with."""
    expected = config.get("vocabulary")
    if not isinstance(expected, str) or expected == model.vocabulary_digest():  # true where there is no digest
        return None
    files = " or ".join(str(folder / file) for file, _ in model.token_files.values())
    return f"{files} is not what the model was saved with, so it may say other words than it means; restore it"


def _holds_all(model: Model) -> bool:
    """Return whether the state dict of a model gives all its tensors: none is shared, and none a plain attribute."""
    tensors = [*model.parameters(), *model.buffers()]
    plain = [value for module in model.modules() for value in vars(module).values() if isinstance(value, Tensor)]
    return not plain and len(tensors) == len(model.state_dict())


class _SkipInit(TorchFunctionMode):
    """Leave meta tensors as they are in place of random initialization, for which torch would import its compiler."""

    def __torch_function__(
        self, func: Callable[..., object], types: object, args: tuple = (), kwargs: dict | None = None
    ) -> object:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        tensor = args[0] if args else kwargs.get("tensor")
        if name.endswith("_") and hasattr(torch.nn.init, name) and isinstance(tensor, Tensor):
            return tensor
        return func(*args, **kwargs)


def build_on_meta(name: str, options: Mapping[str, object]) -> Model | None:
    """Return the model without values, or None for one of a plugin whose construction needs values.

    Raise ConfigError for options that no model has.
    """
    try:
        with torch.device("meta"), _SkipInit():
            return build_model(name, options)
    except (RuntimeError, OverflowError) as error:
        if "meta" in str(error):
            return None
        raise ConfigError(f"its options are those of no model ({str(error).splitlines()[0]})") from error
