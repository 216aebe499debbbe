"""What beam search, greedy decoding and sampling share: the interface of models, the inputs and the output."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor

from legenda.decoding.decoder import Decoder
from legenda.decoding.generation_config import GenerationConfig
from legenda.errors import ConfigError, DataError
from legenda.regions import Memory, Regions


class _HasAttributes(type(Protocol)):  # type: ignore[invalid-inheritance]
    """Check instances with `hasattr`: since Python 3.12 protocols do not find the submodules of an `nn.Module`."""

    def __instancecheck__(cls, instance: object) -> bool:
        return all(hasattr(instance, name) for name in ("decoder", "generation_config", "encode"))


@runtime_checkable
class SupportsGeneration(Protocol, metaclass=_HasAttributes):
    """What generation needs of a model: an encoder, a decoder and a default configuration."""

    @property
    def decoder(self) -> Decoder: ...

    @property
    def generation_config(self) -> GenerationConfig: ...

    def encode(self, source: Any, /) -> Memory: ...


@dataclass(frozen=True, eq=False)
class GenerationOutput:
    """K generated sequences for each of B images; those of beam search are sorted by score, best first.

    tokens: ids up to eos, then padding.
    log_probs: log-probability of each token under the model, 0 after eos.
    scores: what beam search ranks by: the sum of log_probs, normalized by length where length_penalty is above 0. Where
    fewer than K hypotheses exist, the rows after them have score -inf and hold eos and padding only; where fewer than K
    slots could be filled at all, K is smaller than was asked for.
    attention: cross-attention weights of the step that chose each token, 0 after eos; None unless requested.
    """

    tokens: Int[Tensor, "B K T"]
    log_probs: Float[Tensor, "B K T"]
    scores: Float[Tensor, "B K"]
    attention: Float[Tensor, "B K T H N"] | None = None


def resolve_config(
    model: SupportsGeneration,
    generation_config: GenerationConfig | None,
    *,
    max_length: int | None,
    length_penalty: float | None = None,
) -> GenerationConfig:
    """Return the call's configuration, or else the model's, with the call's other arguments over it."""
    config = model.generation_config if generation_config is None else generation_config
    return config.replace(
        max_length=config.max_length if max_length is None else max_length,
        length_penalty=config.length_penalty if length_penalty is None else length_penalty,
    )


def check_temperature(temperature: float) -> None:
    """Raise ConfigError for a temperature that is not a positive number, or so small that float32 holds no quotient."""
    if not 1e-6 <= temperature < math.inf:
        raise ConfigError(f"temperature must be above 0 (at least 1e-06) and finite, not {temperature}")


def check_scores(scores: Float[Tensor, "B K"]) -> None:
    """Raise DataError where a score of an image is NaN, or none is finite."""
    finite = scores.isfinite().any(dim=1) & ~scores.isnan().any(dim=1)
    if not bool(finite.all()):
        raise DataError(
            f"the scores of image {int((~finite).nonzero()[0])} of the batch are NaN or infinite; look for extreme "
            "values in its features, check the run with legenda inspect --verify, or compute in float32"
        )


def encode_inputs(model: SupportsGeneration, inputs: Regions | Memory) -> Memory:
    """Return the memory of regions, which are encoded, or a memory as it is."""
    return inputs if isinstance(inputs, Memory) else model.encode(inputs)
