"""Models stored as folders: config.json, model.safetensors and the files of the vocabulary; nothing is pickled.

These are vocabulary.txt and, for models that answer questions, answers.txt, or, for translators, subwords.model. A
folder is named by its path, packaged with the library, or on Hugging Face's hub.
"""

from __future__ import annotations

import logging
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from legenda.config import merge
from legenda.decoding.generation import GenerationConfig
from legenda.errors import CheckpointError, ConfigError, first_line, import_extra
from legenda.hub import FILES, find_model, is_of_transformers
from legenda.io import atomic_write, get_field, read_text, verified, write_text
from legenda.models.base import Captioner, Model
from legenda.models.registry import build_model
from legenda.run_folder import (
    ANSWERS,
    CONFIG,
    HISTORY,
    VOCABULARY,
    WEIGHTS,
    as_checkpoint_error,
    read_config,
    split_model,
)

_LOG = logging.getLogger(__name__)
_AGAIN = "copy the file again or train the model again"
_SCALE = "_scale"
_CHECKSUM = "checksum"
"""The checksum in the file's header; files of earlier versions and other programs have none."""


def save_weights(weights: Mapping[str, Tensor], folder: Path) -> None:
    """Write the state dict `weights` to model.safetensors, atomically."""
    with atomic_write(folder / WEIGHTS, sync=True) as partial:
        state = {name: tensor.contiguous() for name, tensor in weights.items()}
        safetensors.torch.save_file(state, partial, {_CHECKSUM: checksum(state)})


def checksum(tensors: Mapping[str, Tensor]) -> str:
    """Return a checksum of names, dtypes, shapes and values, which detects damage but no intent."""
    crc = 0
    for name, tensor in sorted(tensors.items()):
        crc = zlib.crc32(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode(), crc)
        crc = zlib.crc32(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data, crc)
    return f"crc32:{crc:08x}"


@as_checkpoint_error()
def read_checksum(path: Path) -> str:
    """Return the checksum in the header of a file of weights; the tensors are read only where it has none."""

    def read() -> str:
        with safetensors.safe_open(path, framework="pt") as file:
            stored = (file.metadata() or {}).get(_CHECKSUM)
        return stored or checksum(_read(path))

    return verified(read, path, _AGAIN)


def quantize(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return matrices and kernels as int8 with a float32 scale of each row, named with `_scale`; others as float32."""
    stored = {}
    for name, tensor in tensors.items():
        stored[name] = tensor.float()
        if tensor.dim() > 1:
            scale = stored[name].flatten(1).abs().amax(1).clamp(min=1e-12) / 127
            stored[name] = (stored[name] / _like_rows(scale, tensor)).round().to(torch.int8)
            stored[name + _SCALE] = scale
    return stored


def dequantize(stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors of `quantize` as float32, and any others as they are."""
    scales = {name + _SCALE for name, tensor in stored.items() if tensor.dtype == torch.int8} & stored.keys()
    return {
        name: tensor.float() * _like_rows(stored[name + _SCALE], tensor) if name + _SCALE in scales else tensor
        for name, tensor in stored.items()
        if name not in scales
    }


def _like_rows(scale: Tensor, tensor: Tensor) -> Tensor:
    return scale.view(-1, *[1] * (tensor.dim() - 1))


@as_checkpoint_error()
def load_tensors(path: Path, hint: str) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file, those of `quantize` as float32; raise CheckpointError with the hint."""
    return verified(lambda: dequantize(_read(path)), path, hint)


def _read(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a file as they are stored; raise ValueError where the checksum is that of others."""
    with safetensors.safe_open(path, framework="pt") as file:
        expected = (file.metadata() or {}).get(_CHECKSUM)
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    if expected not in (None, checksum(tensors)):
        raise ValueError("its values differ from its checksum")
    return tensors


@as_checkpoint_error()
def check_header(model: nn.Module, path: Path) -> None:
    """Raise CheckpointError unless the names and shapes in the header of a file are those of a model, also on meta."""

    def read() -> dict[str, tuple[int, ...]]:
        with safetensors.safe_open(path, framework="pt") as file:
            return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118

    shapes = verified(read, path, _AGAIN)
    scales = {name + _SCALE for name in shapes}
    _check_shapes(model.state_dict(), {name: shape for name, shape in shapes.items() if name not in scales}, path)


def _check_shapes(state: Mapping[str, Tensor], shapes: Mapping[str, tuple[int, ...]], path: Path) -> None:
    missing, unexpected = sorted(state.keys() - shapes.keys()), sorted(shapes.keys() - state.keys())
    if missing and unexpected:
        raise CheckpointError(
            f"{path} is of another model: it lacks {missing[0]} and holds {unexpected[0]}; restore the file of this one"
        )
    if missing or unexpected:
        what = f"lacks {missing[0]}" if missing else f"holds {unexpected[0]}, which the model does not have"
        raise CheckpointError(f"{path} {what}; {_AGAIN}")
    for name, tensor in state.items():
        if tensor.shape != shapes[name]:
            raise CheckpointError(
                f"{path} holds {name} with shape {shapes[name]} where config.json gives {tuple(tensor.shape)}; the two "
                "files belong to different models"
            )


def load_weights(model: nn.Module, path: Path) -> None:
    """Load the tensors of a file into the model.

    Raise CheckpointError unless names, shapes and kinds of dtype are the model's, and all values are finite.
    """
    tensors = load_tensors(path, _AGAIN)
    state = model.state_dict()
    _check_shapes(state, {name: tuple(tensor.shape) for name, tensor in tensors.items()}, path)
    for name, tensor in state.items():
        stored = tensors[name]
        if stored.dtype != tensor.dtype and not (stored.is_floating_point() and tensor.is_floating_point()):
            raise CheckpointError(
                f"{path} holds {name} as {stored.dtype}, where the model has {tensor.dtype}; {_AGAIN}"
            )
        tensors[name] = stored.to(tensor.dtype)
    check_finite(tensors, path, _AGAIN)
    model.load_state_dict(tensors)


class StandIn:
    """Takes the place of an object in a pickle, such as NumPy's random states: its attributes, none of its methods."""

    def __init__(self, *_: Any) -> None: ...

    def __setstate__(self, state: Any) -> None:
        self.__dict__.update(state if isinstance(state, dict) else {})


NUMPY_GLOBALS = (
    *(f"numpy.{core}.multiarray.{name}" for core in ("core", "_core") for name in ("scalar", "_reconstruct")),
    *("numpy.ndarray", "numpy.dtype", "numpy.dtypes.UInt32DType"),
)
"""What pickles of NumPy's numbers, arrays and random states name."""


def read_tensors(path: Path, hint: str) -> dict[str, Tensor]:
    """Return the tensors of a .safetensors, .npz, .pth, .pt, .pkl or .bin file by name, on the CPU.

    Of a whole checkpoint of training, those under "state_dict" or "model". Pickles are read by torch's weights-only
    loader, which executes nothing in them.
    Raise DataError with the hint for a file that cannot be read, CheckpointError for one without tensors.
    """
    readers = {".safetensors": safetensors.torch.load_file, ".npz": _read_npz}
    read = readers.get(path.suffix, _load_pickle)
    if read is _load_pickle and path.suffix not in (".pth", ".pt", ".pkl", ".bin"):
        raise CheckpointError(f"{path} is not a checkpoint of a known format; {hint}")
    content: Any = verified(lambda: read(path), path, hint)
    if isinstance(content, Mapping):
        for candidate in (content, content.get("state_dict"), content.get("model")):
            if isinstance(candidate, Mapping) and candidate:
                tensors = {str(name): value for name, value in candidate.items() if isinstance(value, Tensor)}
                if len(tensors) == len(candidate):
                    return tensors
    raise CheckpointError(f"{path} contains no state dict; {hint}")


def _read_npz(path: Path) -> dict[str, Tensor]:
    with np.load(path, allow_pickle=False) as arrays:
        return {name: torch.from_numpy(array) for name, array in arrays.items()}


def _load_pickle(path: Path) -> Any:
    try:
        with (
            torch.serialization.safe_globals([(StandIn, name) for name in NUMPY_GLOBALS]),
            warnings.catch_warnings(action="ignore"),
        ):
            return torch.load(path, map_location="cpu", weights_only=True)
    except UnpicklingError as error:  # its message advises to execute the code in the file
        raise ValueError("it holds more than tensors, numbers and containers") from error


def check_finite(tensors: Mapping[str, Tensor], path: Path, hint: str) -> None:
    """Raise CheckpointError where a tensor of a file has values that are NaN or infinite."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and tensor.numel() and not torch.stack(torch.aminmax(tensor)).isfinite().all():
            raise CheckpointError(f"{path} holds {name} with values that are NaN or infinite; {hint}")


CARD = "README.md"


def upload_model(
    model: Model,
    name: str,
    *,
    config: Mapping[str, Any] | None = None,
    card: str | None = None,
    commit_message: str = "Upload model",
    private: bool | None = None,
    token: str | bool | None = None,
    branch: str | None = None,
    create_pr: bool | None = None,
) -> str:
    """Upload a model and its card to the repository USER/MODEL, which is created; return its address.

    config: further parts of config.json. The options are those of `huggingface_hub`. Raise ConfigError on a failure.
    """
    api = import_extra("huggingface_hub", "hub").HfApi(token=token)
    default = f"---\nlibrary_name: legenda\n---\n\n# {name}\n\n{model.name} of Legenda.\n"
    with TemporaryDirectory() as folder:
        write_text(model.save(folder, **(config or {})) / CARD, default if card is None else card)
        how = {"commit_message": commit_message, "revision": branch, "create_pr": create_pr}
        try:
            repository = api.create_repo(name, private=private, exist_ok=True)
            api.upload_folder(repo_id=repository.repo_id, folder_path=folder, allow_patterns=[*FILES, CARD], **how)
        except Exception as error:
            raise ConfigError(
                f"{name} could not be uploaded to Hugging Face's hub ({first_line(error)}); check the name and the "
                "network, and log in with `hf auth login`"
            ) from error
    return str(repository)


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


def _set_generation_config(model: Model, config: Mapping[str, Any], path: Path) -> None:
    """Take the configuration of generation from that of a folder, for models that generate."""
    if model.generation_config is None:
        return
    options = get_field(config, "generation_config", dict, str(path), "save the model again")
    model.generation_config = merge(GenerationConfig, options, "generation_config")
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
    return path.exists() and '"validation"' not in read_text(path, _AGAIN)


def changed_words(model: Model, config: Mapping[str, Any], folder: Path) -> str | None:
    """Return what is wrong where the words in a folder, or their order, are not those that the model was saved with."""
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
