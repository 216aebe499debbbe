"""Models stored as folders: config.json, model.safetensors and the files of the vocabulary; nothing is pickled.

These are vocabulary.txt and, for models that answer questions, answers.txt, or, for translators, subwords.model. A
folder is named by its path, packaged with the library, or on Hugging Face's hub.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from legenda.config import merge
from legenda.decoding.generation import GenerationConfig
from legenda.errors import CheckpointError, ConfigError
from legenda.hub import download_model
from legenda.models.base import Captioner, Model
from legenda.models.registry import build_model
from legenda.models.weights import as_checkpoint_error, check_header, load_weights
from legenda.run_folder import ANSWERS, CONFIG, VOCABULARY, WEIGHTS, find_seeds, read_config

PACKAGED = "photo"
"""The name of the packaged model of photographs."""
HUB_PREFIX = "hf:"
"""What precedes the name of a model of transformers, on the hub or in a folder, in place of a run."""
ASSETS = Path(__file__).parents[1] / "assets"
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")

_HINT = "a model folder holds config.json, model.safetensors and vocabulary.txt"
_SIZES = {
    "vocab_size": f"restore the {VOCABULARY} of its training",
    "answers": f"restore the {ANSWERS} of its training",
    "feature_dim": "use features of the extractor of its training",
}
"""What a model that starts from another one needs to have in common with it, and what to do otherwise."""


def is_run_folder(name: str | Path) -> bool:
    """Return whether a name is the path of a folder with a config.json, and not a packaged model or one of the hub."""
    return (Path(name) / CONFIG).is_file()


def is_of_transformers(name: str | Path) -> bool:
    """Return whether a name is hf:NAME, of a model of transformers in place of a run."""
    return str(name).startswith(HUB_PREFIX)


def find_model(name: str | Path) -> Path:
    """Return the folder of a model: a path, "photo" for the packaged model, or USER/MODEL of Hugging Face's hub.

    A path that exists is never looked up in the hub. Raise CheckpointError or ConfigError where there is no model.
    """
    path = Path(name)
    if is_run_folder(path) or is_of_transformers(path):
        return path
    if str(name) == PACKAGED:
        if not (ASSETS / PACKAGED / CONFIG).is_file():
            raise ConfigError("this installation lacks the packaged model photo; name a run folder instead")
        return ASSETS / PACKAGED
    if not path.parent.exists() and _HUB_ID.fullmatch(str(name)):
        return download_model(str(name))
    if seeds := find_seeds(path):
        raise CheckpointError(f"{path} holds runs of {len(seeds)} seeds; name one of them, such as {seeds[0]}")
    if not path.is_dir():
        raise CheckpointError(f"{path} is not a folder with a model; train one with `legenda train` or check the path")
    return path


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
def inherit_generation_config(model: Model, folder: Path) -> None:
    """Search as the model of a folder does, if it has the same name and so the same decoder."""
    path = folder / CONFIG
    with _usable_section(path):
        section = read_config(folder, _HINT)["model"]
        if section["name"] == model.name:
            _set_generation_config(model, section)


@as_checkpoint_error()
def check_sizes(model: Model, folder: Path) -> None:
    """Raise CheckpointError unless a model that starts from that of a folder reads its vocabulary and features."""
    path = folder / CONFIG
    with _usable_section(path):
        options = read_config(folder, _HINT)["model"]["options"]
        for name, remedy in _SIZES.items():
            found = getattr(model.config, name, None)
            if found != (expected := options.get(name, found)):
                raise CheckpointError(f"{folder} was trained with {name}={expected}, not {found}; {remedy}")


@contextmanager
def _usable_section(path: Path) -> Iterator[None]:
    """Raise CheckpointError, naming the file, for a part "model" that lacks something or has wrong values."""
    try:
        yield
    except (KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(
            f'{path} has no usable "model" part with a name and options; save the model again'
        ) from error
    except ConfigError as error:
        raise CheckpointError(f"{path}: {error}") from error


def _set_generation_config(model: Model, section: Mapping[str, Any]) -> None:
    """Take the configuration of generation from the part "model" of a config.json, for models that generate."""
    if model.generation_config is None:
        return
    model.generation_config = merge(GenerationConfig, section["generation_config"], "generation_config")
    if max(model.generation_config.token_ids) >= model.config.vocab_size:
        raise ConfigError("generation_config names token ids outside the vocabulary")


def load_any(folder: str | Path) -> Model:
    """Return the model of a folder, of any task; otherwise as `load`."""
    return load_with_config(find_model(folder))[0]


@as_checkpoint_error()
def load_with_config(folder: Path) -> tuple[Model, Any]:
    """Return the model of a folder and the content of its config.json; otherwise as `load`."""
    if is_of_transformers(folder):
        raise CheckpointError(f"{folder} is a model of transformers, which this command does not take; name a run")
    path, weights = folder / CONFIG, folder / WEIGHTS
    content = read_config(folder, _HINT)
    with _usable_section(path):
        section = content["model"]
        model = build_on_meta(section["name"], section["options"])
        if model is not None:  # compared before memory is allocated for a stranger's options
            check_header(model, weights)
        if model is not None and _holds_all(model):
            # as to_empty(device="cpu"), whose empty_like imports SymPy for meta tensors, half a second
            model = model._apply(lambda tensor: torch.empty(tensor.shape, dtype=tensor.dtype))
        else:
            model = build_model(section["name"], section["options"])
        _set_generation_config(model, section)
    load_weights(model, weights)
    if section.get("vocabulary"):
        model.load_vocabulary(folder)
        assert model.vocabulary is not None
        if len(model.vocabulary) != section["options"]["vocab_size"]:
            raise CheckpointError(
                f"{folder / VOCABULARY} has {len(model.vocabulary)} tokens where {path} has vocab_size="
                f"{section['options']['vocab_size']}; restore the vocabulary the model was trained with"
            )
    return model.eval(), content


def _holds_all(model: Model) -> bool:
    """Return whether the state dict of a model gives all its tensors: none is shared, and none a plain attribute."""
    tensors = [*model.parameters(), *model.buffers()]
    plain = [value for module in model.modules() for value in vars(module).values() if isinstance(value, Tensor)]
    return not plain and len(tensors) == len(model.state_dict())


class _SkipInit(TorchFunctionMode):
    """Leave meta tensors as they are in place of random initialization, for which torch would import its compiler."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        tensor = args[0] if args else kwargs.get("tensor")
        if name.endswith("_") and hasattr(torch.nn.init, name) and isinstance(tensor, Tensor):
            return tensor
        return func(*args, **kwargs)


def build_on_meta(name: str, options: Mapping[str, Any]) -> Model | None:
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
