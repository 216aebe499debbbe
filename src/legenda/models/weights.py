"""Weights on disk: safetensors with a checksum, int8 with scales, and the checkpoints of other codes."""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError

import numpy as np
import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from legenda.errors import CheckpointError
from legenda.io import atomic_write, verified
from legenda.run_folder import WEIGHTS, as_checkpoint_error

_AGAIN = "copy the file again or train the model again"
_SCALE = "_scale"
"""What follows the name of an int8 tensor in the name of its scales."""
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
    """Return the tensors before `quantize`, up to its rounding; tensors without scales stay as they are."""
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
    """Return the tensors of a file as they are stored; raise ValueError where they differ from its checksum."""
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

    def __init__(self, *_: object) -> None: ...

    def __setstate__(self, state: object) -> None:
        self.__dict__.update(state if isinstance(state, dict) else {})


NUMPY_GLOBALS = (
    *(f"numpy.{core}.multiarray.{name}" for core in ("core", "_core") for name in ("scalar", "_reconstruct")),
    *("numpy.ndarray", "numpy.dtype", "numpy.dtypes.UInt32DType"),
)
"""Functions that pickles of NumPy's numbers, arrays and random states name."""


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
    content: object = verified(lambda: read(path), path, hint)
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


def _load_pickle(path: Path) -> object:
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
