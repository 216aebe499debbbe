"""The folder of an exported captioner: its files, and export.json, read as what a stranger may have written."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import field_validator

from legenda.config import NonNegativeFloat, NonNegativeInt, PositiveInt, merge
from legenda.errors import CheckpointError, ConfigError, DataError
from legenda.images.identity import UNNAMED, ExtractorIdentity
from legenda.io import FORMAT_VERSION, check_format, read_json, verified
from legenda.runtime.settings import ChoiceConfig, GenerationConfig
from legenda.text import Vocabulary

__all__ = ["ExportedModel", "is_exported", "read_exported"]

Format = Literal["onnx", "torch"]
SETTINGS, VOCABULARY, ENCODER, DECODER = "export.json", "vocabulary.json", "encoder.onnx", "decoder.onnx"
GRID_BOXES = "boxes_of_grid"
"""The encoder's output with the boxes `(B, N, 4)` of the regions that it makes of pixels."""
OF_RUN = ("summary", "extractor", *ChoiceConfig.model_fields)
"""The parts of a run's config.json that an export takes over."""
MAX_BYTES = 2**31
"""The largest ONNX file; the format itself ends there."""
_HINT = "export the model again"


class ExportedModel(ChoiceConfig):
    """What export.json says of a captioner."""

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
    def _read_extractor(cls, value: Any) -> ExtractorIdentity:
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
    for name, limit in ((ENCODER, MAX_BYTES), (DECODER, MAX_BYTES), (VOCABULARY, MAX_BYTES >> 5)):
        _check_file(folder / name, limit, settings.digests.get(name))
    try:
        tokens = read_json(folder / VOCABULARY, _HINT)
        if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
            raise DataError(f"{folder / VOCABULARY} is no list of tokens; {_HINT}")
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
