"""The captioner of a PyTorch model, as pipelines take it: regions as arrays in, sequences as arrays out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from legenda.decoding import GenerationConfig, GenerationOutput
from legenda.decoding.search import search
from legenda.models import Captioner
from legenda.models.base import inference
from legenda.models.packing import PackedWeights
from legenda.regions import Regions
from legenda.runtime.captioner import Captioned, ImageRegions
from legenda.runtime.search import SearchOutput
from legenda.text import Vocabulary


@dataclass(frozen=True, eq=False)
class TorchCaptioner:
    """A model on its device, in evaluation mode; see `legenda.runtime.captioner.Captioner`."""

    model: Captioner
    weights: PackedWeights = field(default_factory=PackedWeights, repr=False)
    """The packed copies of the model's weights, which the first search makes for all."""

    def __post_init__(self) -> None:
        self.model.eval()

    @property
    def name(self) -> str:
        """The name of the architecture."""
        return self.model.name

    @property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary of the model; raise CheckpointError where it has none."""
        return self.model.require_vocabulary()

    @property
    def parameter_count(self) -> int:
        """The number of trainable parameters."""
        return self.model.parameter_count

    @property
    def generation_config(self) -> GenerationConfig:
        """How the model searches."""
        return self.model.generation_config

    def prepare(self, regions: Sequence[ImageRegions]) -> Regions:
        """Return the regions of images as one batch on the device; a model's backbone makes those of pixels."""
        batch = Regions.stack([Regions.from_numpy(*image) for image in regions])
        with inference(self.model, self.weights) as model:
            return model.prepare(batch.to(model.device))

    def search(
        self,
        regions: Sequence[ImageRegions],
        config: GenerationConfig,
        *,
        num_captions: int = 1,
        names: Sequence[str] | None = None,
        need_attention: bool = False,
    ) -> Captioned:
        """Generate `num_captions` sequences for the regions of each image."""
        batch = self.prepare(regions)
        with inference(self.model, self.weights) as model:
            output = search(
                model,
                batch,
                config,
                num_captions=num_captions,
                names=names,
                need_attention=need_attention,
            )
        return to_arrays(output, batch)


def to_arrays(output: GenerationOutput, regions: Regions) -> Captioned:
    """Return the output of a search over regions as arrays."""

    def convert(values: Tensor) -> np.ndarray:
        return (values.float() if values.dtype in (torch.bfloat16, torch.float16) else values).cpu().numpy()

    arrays = (None if values is None else convert(values) for values in vars(output).values())
    boxes = None if regions.boxes is None else convert(regions.boxes.float())
    return Captioned(SearchOutput(*arrays), boxes, convert(regions.mask_or_ones))  # type: ignore[arg-type]
