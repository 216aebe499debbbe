"""Captioners: what turns the regions of images into tokens, and the one that ONNX Runtime runs, without PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self

import numpy as np

from legenda.errors import CheckpointError, ConfigError, DataError, first_line
from legenda.images.regions import ImageRegions, RegionArrays, grid_boxes, pack
from legenda.runtime.folder import DECODER, ENCODER, GRID_BOXES, ExportedModel, read_exported
from legenda.runtime.search import ROWS, SearchOutput, State, search
from legenda.runtime.settings import GenerationConfig
from legenda.runtime.threads import get_num_threads
from legenda.text import Vocabulary

__all__ = ["Captioned", "Captioner", "OnnxCaptioner"]


class Captioned(NamedTuple):
    """The output of a search over the regions of B images, and these regions, over which its attention is.

    boxes: `(B, N, 4)`, x1 y1 x2 y2 in 0..1, or None where they have none. mask: `(B, N)`, False for padding.
    """

    output: SearchOutput
    boxes: np.ndarray | None
    mask: np.ndarray


class Captioner(Protocol):
    """What a pipeline takes: a vocabulary, the identity of the extractor of its features, and a search."""

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
        """Generate `num_captions` sequences for the regions of each image; names: of the images, for samples.

        Raise DataError for regions that the model cannot read, and where scores are NaN or infinite.
        """
        ...


@dataclass(frozen=True, eq=False)
class OnnxCaptioner:
    """A captioner that `legenda export` wrote: an encoder and a decoder step, run by ONNX Runtime on the CPU.

    Several threads may use it at the same time.
    """

    settings: ExportedModel
    vocabulary: Vocabulary
    encoder: Any
    decoder: Any
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
        """Return what the decoder reads of images, with one empty row for each."""
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

    def _run(self, session: Any, inputs: State, names: list[str] | None) -> State:
        names = [value.name for value in session.get_outputs()] if names is None else names
        try:
            return dict(zip(names, session.run(names, inputs), strict=True))
        except Exception as error:  # ONNX Runtime's own classes
            if "allocate" in str(error):
                raise MemoryError from error
            raise CheckpointError(
                f"{self.folder} cannot be run ({first_line(error)}); export the model again"
            ) from error

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
        return CheckpointError(f"{self.folder / file} is no file of legenda export: {reason}; export the model again")


def open_sessions(paths: Sequence[Path], hint: str = "export the model again") -> list[Any]:
    """Return the sessions of files, which are opened at the same time; otherwise as `open_session`."""
    with ThreadPoolExecutor(len(paths)) as pool:
        return list(pool.map(partial(open_session, hint=hint), paths))


def open_session(path: Path, hint: str = "export the model again") -> Any:
    """Return a session of ONNX Runtime, which has no operators but its own and reads no file of another folder.

    Raise CheckpointError with the hint for a file that is missing or damaged.
    """
    import onnxruntime  # late: a command's help takes no time for it

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # what fails is raised
    options.intra_op_num_threads = get_num_threads()
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        # its second attempt, with the same provider, prints what has failed
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"], enable_fallback=0)
    except Exception as error:  # ONNX Runtime's own classes
        raise CheckpointError(f"{path} is not a model that ONNX Runtime opens ({first_line(error)}); {hint}") from error
