"""Several models that choose each word together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from legenda.decoding.common import Decodable
from legenda.decoding.decoder import Decoder, State
from legenda.errors import UserError
from legenda.regions import Memory, Regions


@dataclass(frozen=True, eq=False)
class EnsembleMemory(Memory):
    """The memories of all members for the same images; what it shows of its own is that of the first."""

    members: tuple[Memory, ...] = ()

    def __getitem__(self, index: slice | Tensor) -> EnsembleMemory:
        """The memory of the pictures named by a slice or an index tensor."""
        return _together([member[index] for member in self.members])


@dataclass(frozen=True, eq=False)
class EnsembleState:
    """The states of all members; `attention` is the first one's."""

    members: tuple[State, ...]

    @property
    def attention(self) -> Float[Tensor, "B K H N"] | None:
        return self.members[0].attention

    def reorder(self, beams: Int[Tensor, "B K"]) -> EnsembleState:
        """The state of rows `beams` of each image."""
        return EnsembleState(tuple(member.reorder(beams) for member in self.members))


class EnsembleDecoder(Decoder):
    """The decoders of all members, and the mean of what they say."""

    normalised = True

    def __init__(self, members: Sequence[Decoder], weights: Sequence[float], mean: str) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        self.mean = mean
        self.register_buffer("weights", torch.tensor(weights, dtype=torch.float64) / sum(weights), persistent=False)

    def start(self, memory: Memory, rows: int) -> EnsembleState:
        """The members' own."""
        parts = zip(self._decoders, _members(memory), strict=True)
        return EnsembleState(tuple(decoder.start(part, rows) for decoder, part in parts))

    def start_with_room(self, memory: Memory, rows: int, words: int) -> EnsembleState | None:
        """The members' own; None where a member has none."""
        parts = zip(self._decoders, _members(memory), strict=True)
        states = [decoder.start_with_room(part, rows, words) for decoder, part in parts]
        found = tuple(state for state in states if state is not None)
        return EnsembleState(found) if len(found) == len(states) else None

    def step(
        self, tokens: Int[Tensor, "B K"], state: EnsembleState, memory: Memory
    ) -> tuple[Float[Tensor, "B K V"], EnsembleState]:
        """The mean log-probabilities of the next word, and the members' states."""
        parts = zip(self._decoders, state.members, _members(memory), strict=True)
        steps = [decoder.step(tokens, member, part) for decoder, member, part in parts]
        return self._average([logits for logits, _ in steps]), EnsembleState(tuple(state for _, state in steps))

    def forward(self, tokens: Int[Tensor, "B K T"], memory: Memory) -> Float[Tensor, "B K T V"]:
        """The mean log-probabilities after every prefix of `tokens`."""
        parts = zip(self._decoders, _members(memory), strict=True)
        return self._average([decoder(tokens, part) for decoder, part in parts])

    @property
    def _decoders(self) -> list[Decoder]:
        return [member for member in self.members if isinstance(member, Decoder)]

    def _average(self, logits: list[Tensor]) -> Tensor:
        said = torch.stack([x.to(torch.promote_types(x.dtype, torch.float32)).log_softmax(dim=-1) for x in logits])
        weights = self.weights.to(said.dtype).view(-1, *[1] * (said.dim() - 1))
        if self.mean == "probabilities":
            return (said + weights.log()).logsumexp(dim=0)
        return (said * weights).sum(dim=0)


class Ensemble(nn.Module):
    """Several captioners as one that every search can use.

    mean: of "probabilities", as AoANet's release and all four papers have it, or of "log_probabilities", as MD-SAN's
    release, which leaves their sum below 1. weights: of the members, all equal unless told. The rule of search is the
    first member's.

    Raises UserError when there is no member, or their vocabularies, special ids or numbers of weights differ.
    """

    def __init__(
        self,
        models: Sequence[Decodable],
        *,
        weights: Sequence[float] | None = None,
        mean: Literal["probabilities", "log_probabilities"] = "probabilities",
    ) -> None:
        super().__init__()
        if not models:
            raise UserError("an ensemble needs at least one model")
        weights = [1.0] * len(models) if weights is None else list(weights)
        if len(weights) != len(models) or min(weights) <= 0:
            raise UserError(f"an ensemble of {len(models)} models needs as many weights above 0, not {weights}")
        if mean not in ("probabilities", "log_probabilities"):
            raise UserError(f"mean must be probabilities or log_probabilities, not {mean!r}")
        first, words = models[0], _vocabulary(models[0])
        for model in models[1:]:
            ids = (model.decoding.begin_id, model.decoding.end_id)
            if ids != (first.decoding.begin_id, first.decoding.end_id) or _vocabulary(model) != words:
                raise UserError("the models of an ensemble must have the same vocabulary and special ids")
        self.models = nn.ModuleList(model for model in models if isinstance(model, nn.Module))
        self.decoder: Decoder = EnsembleDecoder([model.decoder for model in models], weights, mean)
        self.decoding = replace(first.decoding)
        self._members = list(models)

    def encode(self, regions: Regions) -> EnsembleMemory:
        """Each member's memory of the same images."""
        return _together([model.encode(regions) for model in self._members])


def _together(members: Sequence[Memory]) -> EnsembleMemory:
    first = members[0]
    return EnsembleMemory(first.states, first.mask, first.global_feature, first.keys_values, tuple(members))


def _members(memory: Memory) -> tuple[Memory, ...]:
    assert isinstance(memory, EnsembleMemory)
    return memory.members


def _vocabulary(model: Decodable) -> object:
    """What two members must share: their words, or at least how many there are."""
    words = getattr(model, "vocabulary", None)
    return words if words is not None else getattr(getattr(model, "config", None), "vocab_size", None)
