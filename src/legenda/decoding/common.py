"""What all searches share: what they ask of a model, and what they give back."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from legenda.decoding.decoder import Decoder, DecodingRule
from legenda.regions import Memory, Regions


class _HasAttributes(type(Protocol)):  # type: ignore[invalid-inheritance]
    """Check instances with `hasattr`: since Python 3.12 protocols do not find the submodules of an `nn.Module`."""

    def __instancecheck__(cls, instance: object) -> bool:
        return all(hasattr(instance, name) for name in ("decoder", "decoding", "encode"))


@runtime_checkable
class Decodable(Protocol, metaclass=_HasAttributes):
    """What a search needs: something that encodes a source, steps over rows of tokens and has a rule of its own."""

    @property
    def decoder(self) -> Decoder: ...

    @property
    def decoding(self) -> DecodingRule: ...

    def encode(self, source: Any, /) -> Memory: ...


@dataclass(frozen=True, eq=False)
class Decoded:
    """K captions for each of B images, the best first where they compete.

    tokens: ids with the end id, and after it nothing but end ids.
    log_probs: log-probability of each token under the model, 0 after the end.
    scores: what the search ranks by; the sum of log_probs unless a length penalty divides it. Where fewer than K
    captions exist, rows of score -inf and nothing but end ids fill up K, or K is smaller than was asked for.
    attention: where each token's row looked when it was chosen, 0 after the end; None unless asked for.
    """

    tokens: Int[Tensor, "B K T"]
    log_probs: Float[Tensor, "B K T"]
    scores: Float[Tensor, "B K"]
    attention: Float[Tensor, "B K T H N"] | None = None


def rule_of(
    model: Decodable, rule: DecodingRule | None, *, max_length: int | None, length_penalty: float | None = None
) -> DecodingRule:
    """The call's rule, or the model's, with what the call overrides; UserError for what no search can follow."""
    own = model.decoding if rule is None else rule
    return dataclasses.replace(
        own,
        max_length=own.max_length if max_length is None else max_length,
        length_penalty=own.length_penalty if length_penalty is None else length_penalty,
    )


def memory_of(model: Decodable, images: Regions | Memory) -> Memory:
    """The encoded images; regions are encoded, a memory is taken as it is."""
    return images if isinstance(images, Memory) else model.encode(images)


def stack_attention(
    looked: list[Float[Tensor, "B K H N"]], alive: Bool[Tensor, "B K T"]
) -> Float[Tensor, "B K T H N"] | None:
    """Attention of all steps, blanked where a caption had ended before; None when none was kept."""
    return torch.stack(looked, dim=2) * alive[..., None, None] if looked else None
