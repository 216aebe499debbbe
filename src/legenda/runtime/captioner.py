"""Captioners: what turns the regions of images into tokens, and the one that ONNX Runtime runs, without PyTorch.

Its folder is what `legenda export` writes; export.json is read as what a stranger may have written.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, Self

import numpy as np
from pydantic import field_validator

from legenda.config import NonNegativeFloat, NonNegativeInt, PositiveInt, conform, merge
from legenda.errors import CheckpointError, ConfigError, DataError, first_line
from legenda.images.extractor import UNNAMED, ExtractorIdentity, ImageRegions, RegionArrays, grid_boxes, pack
from legenda.io import FORMAT_VERSION, check_format, read_json, verified
from legenda.runtime.search import ROWS, SearchOutput, State, search
from legenda.runtime.settings import ChoiceConfig, GenerationConfig
from legenda.text import Vocabulary

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

__all__ = ["Captioned", "Captioner", "ExportedModel", "OnnxCaptioner", "is_exported", "read_exported"]

Format = Literal["onnx", "torch"]
SETTINGS, VOCABULARY, ENCODER, DECODER = "export.json", "vocabulary.json", "encoder.onnx", "decoder.onnx"
GRID_BOXES = "boxes_of_grid"
"""The encoder's output with the boxes `(B, N, 4)` of the regions that it makes of pixels."""
OF_RUN = ("summary", "extractor", *ChoiceConfig.model_fields)
"""The parts of a run's config.json that an export takes over."""
_MAX_BYTES = 2**31
"""The largest ONNX file; the format itself ends there."""
_HINT = "export the model again"


class ExportedModel(ChoiceConfig):
    """The entries of export.json about a captioner."""

    format_version: PositiveInt = FORMAT_VERSION
    """The version of the format of the folder."""
    legenda: str = ""
    """The version of Legenda that wrote it."""
    model: str
    """The name of the architecture."""
    format: Format = "onnx"
    """onnx: encoder.onnx and decoder.onnx; torch: encoder.pt2 and decoder.pt2."""
    weights: Literal["float32", "int8"] = "float32"
    """The type of the weights of matrix products."""
    parameter_count: NonNegativeInt
    """The number of trainable parameters of the model."""
    summary: str = ""
    """One line about the model, for lists."""
    extractor: ExtractorIdentity = UNNAMED
    """The identity of the extractor of the features."""
    feature_dim: PositiveInt
    """Channels of a region feature."""
    image_size: PositiveInt | None = None
    """The side of the images that the encoder reads as pixels; None where it reads regions."""
    max_regions: NonNegativeInt = 0
    """The first regions of an image that are read; 0 reads all."""
    needs_boxes: bool = False
    """Whether it reads the boxes of the regions."""
    grid_size: PositiveInt | None = None
    """The side of the grid whose cells are the boxes of as many regions without boxes."""
    max_difference: NonNegativeFloat = 0.0
    """The largest absolute difference of an output from PyTorch's, in float32."""
    generation_config: GenerationConfig
    """How the model searches."""
    digests: Mapping[str, str]
    """The SHA-256 of the other files of the folder."""

    @field_validator("extractor", mode="before")
    @classmethod
    def _read_extractor(cls, value: ExtractorIdentity | Mapping[str, object] | str) -> ExtractorIdentity:
        return ExtractorIdentity.read(value, SETTINGS)

    @property
    def width(self) -> int:
        """Channels of what the encoder reads: those of a region feature, or all pixels of an image."""
        return self.feature_dim if self.image_size is None else 3 * self.image_size**2


def is_exported(folder: str | Path) -> bool:
    """Return whether a name is the path of a folder that `legenda export` wrote."""
    return (Path(folder) / SETTINGS).is_file()


def digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_exported(folder: Path) -> tuple[ExportedModel, Vocabulary]:
    """Return the settings and the vocabulary of an exported folder.

    Raise CheckpointError, naming the file, where one is missing, damaged, or not the one that was exported.
    """
    path = folder / SETTINGS
    try:
        content = _mapping(read_json(path, _HINT), path)
        check_format(path, content.get("format_version"), content.get("legenda"))
        settings = merge(ExportedModel, content, "the file")
    except (ConfigError, DataError) as error:
        raise CheckpointError(str(error) if isinstance(error, DataError) else f"{path}: {error}") from error
    if settings.format != "onnx":
        raise CheckpointError(f"{folder} holds files of torch.export; export the model with --format onnx")
    for name, limit in ((ENCODER, _MAX_BYTES), (DECODER, _MAX_BYTES), (VOCABULARY, _MAX_BYTES >> 5)):
        _check_file(folder / name, limit, settings.digests.get(name))
    try:
        tokens = conform(read_json(folder / VOCABULARY, _HINT), list[str], folder / VOCABULARY, _HINT)
        vocabulary = verified(lambda: Vocabulary(tuple(tokens)), folder / VOCABULARY, _HINT)
    except DataError as error:
        raise CheckpointError(str(error)) from error
    if max(settings.generation_config.token_ids) >= len(vocabulary):
        raise CheckpointError(f"{path} names token ids outside {VOCABULARY}, which has {len(vocabulary)}; {_HINT}")
    return settings, vocabulary


def _mapping(content: object, path: Path) -> Mapping[str, object]:
    if not isinstance(content, Mapping):
        raise CheckpointError(f"{path} is not the settings of an exported model; {_HINT}")
    return content


def _check_file(path: Path, limit: int, expected: str | None) -> None:
    if not path.is_file():
        raise CheckpointError(f"{path} does not exist; {_HINT}")
    if path.stat().st_size > limit:
        raise CheckpointError(f"{path} has more than {limit >> 20} MiB, which no exported file has; {_HINT}")
    if digest(path) != expected:
        raise CheckpointError(f"{path} is damaged, or of another export than {SETTINGS}; {_HINT}")


class Captioned(NamedTuple):
    """The output of a search over the regions of B images, with the boxes and the mask of these regions.

    boxes: `(B, N, 4)`, x1 y1 x2 y2 in 0..1, or None where they have none. mask: `(B, N)`, False for padding.
    """

    output: SearchOutput
    boxes: np.ndarray | None
    mask: np.ndarray


class Captioner(Protocol):
    """A captioner as a pipeline takes it: a vocabulary, the identity of the extractor of its features, and a search."""

    @property
    def name(self) -> str:
        """The name of the architecture."""
        ...

    @property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary; raise CheckpointError where there is none."""
        ...

    @property
    def parameter_count(self) -> int:
        """The number of trainable parameters."""
        ...

    @property
    def generation_config(self) -> GenerationConfig:
        """How the model searches."""
        ...

    def search(
        self,
        regions: Sequence[ImageRegions],
        config: GenerationConfig,
        *,
        num_captions: int = 1,
        names: Sequence[str] | None = None,
        need_attention: bool = False,
    ) -> Captioned:
        """Generate `num_captions` sequences for the regions of each image.

        names: the names of the images, from which their samples follow. Raise DataError for regions that the model
        cannot read, and where scores are NaN or infinite.
        """
        ...


@dataclass(frozen=True, eq=False)
class OnnxCaptioner:
    """A captioner that `legenda export` wrote: an encoder and a decoder step, run by ONNX Runtime on the CPU.

    Several threads may use it at the same time.
    """

    settings: ExportedModel
    vocabulary: Vocabulary
    encoder: InferenceSession
    decoder: InferenceSession
    folder: Path

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Return the captioner of a folder.

        Raise CheckpointError, naming the file, for one that is missing, damaged, no such model, or has operators that
        are not ONNX Runtime's own.
        """
        folder = Path(folder)
        settings, vocabulary = read_exported(folder)
        encoder, decoder = open_sessions([folder / name for name in (ENCODER, DECODER)])
        captioner = cls(settings, vocabulary, encoder, decoder, folder)
        captioner._check_interface()
        return captioner

    def __reduce__(self) -> tuple[object, ...]:  # other processes and copies open the files again
        return type(self).load, (self.folder.absolute(),)

    @property
    def name(self) -> str:
        """The name of the architecture."""
        return self.settings.model

    @property
    def parameter_count(self) -> int:
        """The number of trainable parameters of the model that was exported."""
        return self.settings.parameter_count

    @property
    def generation_config(self) -> GenerationConfig:
        """How the model searches."""
        return self.settings.generation_config

    def search(
        self,
        regions: Sequence[ImageRegions],
        config: GenerationConfig,
        *,
        num_captions: int = 1,
        names: Sequence[str] | None = None,
        need_attention: bool = False,
    ) -> Captioned:
        """Generate `num_captions` sequences for the regions of each image; see `Captioner.search`.

        Raise ConfigError for more tokens than the model was exported for.
        """
        if config.max_length > self.generation_config.max_length:
            raise ConfigError(
                f"{self.folder} was exported for at most {self.generation_config.max_length} tokens, not "
                f"{config.max_length}; shorten max_length, or export the model again with --max-length"
            )
        used = [self._prepare(*image) for image in regions]
        has_boxes = [boxes is not None for _, boxes in used]
        if any(has_boxes) != all(has_boxes):
            raise DataError("some images have boxes and some have none; give boxes for all of them or for none")
        batch = pack(used, self.settings.width, all(has_boxes))
        state = self.encode(batch)
        grid = state.pop(GRID_BOXES, None)
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):  # scores are checked at the end
            output = search(
                self.step,
                state,
                len(used),
                config,
                num_captions=num_captions,
                names=names,
                need_attention=need_attention,
            )
        if grid is None:
            return Captioned(output, batch.boxes, batch.mask)
        return Captioned(output, grid, np.ones(grid.shape[:2], bool))

    def encode(self, batch: RegionArrays) -> State:
        """Return the first state of the decoder for images, with one empty row each."""
        boxes = np.zeros((*batch.mask.shape, 4), np.float32) if batch.boxes is None else batch.boxes
        inputs = {"features": batch.features.astype(np.float32, copy=False), "boxes": boxes, "mask": batch.mask}
        return self._run(self.encoder, inputs, None)

    def step(
        self, tokens: np.ndarray, state: State, *, need_attention: bool
    ) -> tuple[np.ndarray, np.ndarray | None, State]:
        """Return the logits `(B, K, V)` after tokens `(B, K)`, the attention weights, and the next state."""
        names = [value.name for value in self.decoder.get_outputs() if need_attention or value.name != "attention"]
        read = {value.name for value in self.decoder.get_inputs()}
        inputs = {"tokens": tokens, **{name: value for name, value in state.items() if name in read}}
        outputs = self._run(self.decoder, inputs, names)
        following = {name[5:]: value for name, value in outputs.items() if name.startswith("next_")}
        return outputs["logits"], outputs.get("attention"), {**state, **following}

    def _prepare(self, features: np.ndarray, boxes: np.ndarray | None) -> ImageRegions:
        """Return the regions that the model reads; raise DataError for features of another width or without boxes."""
        settings = self.settings
        if features.ndim != 2 or features.shape[1] != settings.width:
            raise DataError(
                f"the features have {features.shape[-1]} channels but {self.name} reads {settings.width}; use "
                "features of the extractor it was trained with"
            )
        if settings.max_regions:
            features = features[: settings.max_regions]
            boxes = None if boxes is None else boxes[: settings.max_regions]
        if boxes is None and settings.grid_size is not None and len(features) == settings.grid_size**2:
            boxes = grid_boxes(settings.grid_size, settings.grid_size)
        if boxes is None and settings.needs_boxes:
            raise DataError(f"{self.name} needs boxes for its geometry; use an extractor that returns them")
        return features, boxes

    def _run(self, session: InferenceSession, inputs: State, names: list[str] | None) -> State:
        names = [value.name for value in session.get_outputs()] if names is None else names
        try:
            outputs: Any = session.run(names, inputs)
            return dict(zip(names, outputs, strict=True))
        except Exception as error:  # ONNX Runtime's own classes
            if "allocate" in str(error):
                raise MemoryError from error
            raise CheckpointError(f"{self.folder} cannot be run ({first_line(error)}); {_HINT}") from error

    def _check_interface(self) -> None:
        """Raise CheckpointError unless the sessions have the inputs and outputs of an export."""
        encoder, decoder = self.encoder, self.decoder
        inputs = {value.name for value in encoder.get_inputs()}
        if inputs != {"features", "boxes", "mask"}:
            raise self._foreign(ENCODER, f"its inputs are {', '.join(sorted(inputs)) or 'none'}")
        past = {value.name for value in encoder.get_outputs()} | {"tokens"}
        outputs = {value.name: value for value in decoder.get_outputs()}
        unknown = [value.name for value in decoder.get_inputs() if value.name not in past]
        if unknown or "logits" not in outputs:
            raise self._foreign(DECODER, f"{unknown[0]} comes from nowhere" if unknown else "it has no logits")
        rows = {value.name for value in encoder.get_outputs() if value.name.startswith((ROWS, "shared."))}
        if missing := sorted(rows - {name.removeprefix("next_") for name in outputs}):
            raise self._foreign(DECODER, f"it does not return {missing[0]}")
        if (width := outputs["logits"].shape[-1]) != len(self.vocabulary):
            raise self._foreign(DECODER, f"it scores {width} tokens where the vocabulary has {len(self.vocabulary)}")

    def _foreign(self, file: str, reason: str) -> CheckpointError:
        return CheckpointError(f"{self.folder / file} is no file of legenda export: {reason}; {_HINT}")


def open_sessions(paths: Sequence[Path], hint: str = _HINT) -> list[InferenceSession]:
    """Return the sessions of files, which are opened at the same time; errors are those of `_open_session`."""
    with ThreadPoolExecutor(len(paths)) as pool:
        return list(pool.map(partial(_open_session, hint=hint), paths))


def _open_session(path: Path, hint: str) -> InferenceSession:
    """Return a session of ONNX Runtime, which has no operators but its own and reads no file of another folder.

    Raise CheckpointError with the hint for a file that is missing or damaged.
    """
    import onnxruntime  # late: a command's help takes no time for it

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # failures are raised instead
    options.intra_op_num_threads = get_num_threads()
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        # its second attempt, with the same provider, prints what has failed
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"], enable_fallback=0)
    except Exception as error:  # ONNX Runtime's own classes
        raise CheckpointError(f"{path} is not a model that ONNX Runtime opens ({first_line(error)}); {hint}") from error


_threads: list[int] = []
"""The number of threads that `set_num_threads` has set; empty before."""


def get_num_threads() -> int:
    """Return the number of threads of an operation: PyTorch's where it is imported, else the number that was set.

    The default is OMP_NUM_THREADS, as in PyTorch, or the number of CPUs that this process may use.
    """
    if torch := sys.modules.get("torch"):
        return torch.get_num_threads()
    if _threads:
        return _threads[-1]
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    if wanted.isdecimal() and int(wanted) > 0:
        return int(wanted)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def set_num_threads(count: int) -> None:
    """Set the threads of an operation, of sessions of ONNX Runtime that are opened later and of PyTorch."""
    _threads[:] = [count]
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(count)
