"""Ensembles: several models that choose each token together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from legenda.decoding.generation import Decoder, State, SupportsGeneration
from legenda.errors import ConfigError
from legenda.regions import Memory, Regions, at_least_float32


@dataclass(frozen=True, eq=False)
class EnsembleMemory(Memory):
    """The memories of all members for the same images; the fields of a plain memory are the first member's."""

    members: tuple[Memory, ...] = ()

    def __getitem__(self, index: slice | Tensor) -> EnsembleMemory:
        """Return the memory of the images selected by a slice or an index tensor."""
        return _join([member[index] for member in self.members])


@dataclass(frozen=True, eq=False)
class EnsembleState:
    """The states of all members; `attention` is the first member's."""

    members: tuple[State, ...]

    @property
    def attention(self) -> Float[Tensor, "B K H N"] | None:
        return self.members[0].attention

    def reorder(self, beams: Int[Tensor, "B W"]) -> EnsembleState:
        """Return the state of the rows `beams` of each image."""
        return EnsembleState(tuple(member.reorder(beams) for member in self.members))


class EnsembleDecoder(Decoder[EnsembleState]):
    """The decoders of all members; its log-probabilities are the mean of the members'."""

    returns_log_probs = True
    members: Any

    def __init__(self, members: Sequence[Decoder], weights: Sequence[float], mean: str) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        self.mean = mean
        self.weights = [weight / sum(weights) for weight in weights]
        if any(member.compiled_step is not None for member in members):
            self.compile_step()

    def init_state(self, memory: Memory, num_rows: int) -> EnsembleState:
        """Return the members' states."""
        pairs = zip(self.members, _members_of(memory), strict=True)
        return EnsembleState(tuple(decoder.init_state(part, num_rows) for decoder, part in pairs))

    def init_static_state(self, memory: Memory, num_rows: int, max_length: int) -> EnsembleState | None:
        """Return the members' static states; None where a member has none."""
        pairs = zip(self.members, _members_of(memory), strict=True)
        states = tuple(decoder.init_static_state(part, num_rows, max_length) for decoder, part in pairs)
        return None if None in states else EnsembleState(states)

    def step(
        self, tokens: Int[Tensor, "B K"], state: EnsembleState, memory: Memory
    ) -> tuple[Float[Tensor, "B K V"], EnsembleState]:
        """Return the mean log-probabilities of the next tokens, and the members' next states."""
        triples = zip(self.members, state.members, _members_of(memory), strict=True)
        steps = [decoder.step(tokens, member, part) for decoder, member, part in triples]
        return self._average([logits for logits, _ in steps]), EnsembleState(tuple(state for _, state in steps))

    def forward(
        self, tokens: Int[Tensor, "B K T"], memory: Memory, real: Bool[Tensor, "B K T"] | None = None
    ) -> Float[Tensor, "*positions V"]:
        """Return the mean log-probabilities after every prefix of `tokens`, or at the real positions alone."""
        pairs = zip(self.members, _members_of(memory), strict=True)
        return self._average([decoder(tokens, part, real) for decoder, part in pairs])

    def _average(self, logits: list[Tensor]) -> Tensor:
        log_probs = torch.stack([at_least_float32(x).log_softmax(dim=-1) for x in logits])
        weights = log_probs.new_tensor(self.weights).view(-1, *[1] * (log_probs.dim() - 1))
        if self.mean == "probabilities":
            return (log_probs + weights.log()).logsumexp(dim=0)
        return (log_probs * weights).sum(dim=0)


class Ensemble(nn.Module):
    """Several captioners as one model, for beam search, greedy decoding and sampling alike.

    mean: what is averaged, "probabilities" (AoANet's release and all four papers) or "log_probabilities" (MD-SAN's
    release), with which the probabilities of all tokens sum to less than 1. weights: one for each member, equal by
    default. The generation config is the first member's.

    Raises ConfigError when there is no member, or when vocabularies, special ids or the number of weights differ.
    """

    def __init__(
        self,
        models: Sequence[SupportsGeneration],
        *,
        weights: Sequence[float] | None = None,
        mean: Literal["probabilities", "log_probabilities"] = "probabilities",
    ) -> None:
        super().__init__()
        if not models:
            raise ConfigError("an ensemble needs at least one model")
        weights = [1.0] * len(models) if weights is None else list(weights)
        if len(weights) != len(models) or not all(0 < weight < math.inf for weight in weights):
            raise ConfigError(f"an ensemble of {len(models)} models needs as many finite weights > 0, not {weights}")
        if mean not in ("probabilities", "log_probabilities"):
            raise ConfigError(f"mean must be probabilities or log_probabilities, not {mean!r}")
        words = [_vocabulary(model) for model in models]
        if any(other != words[0] for other in words):
            raise ConfigError("the models of an ensemble must have the same vocabulary and special ids")
        self.models = nn.ModuleList(model for model in models if isinstance(model, nn.Module))
        self.decoder: Decoder = EnsembleDecoder([model.decoder for model in models], weights, mean)
        self.generation_config = models[0].generation_config
        self._members = list(models)

    def encode(self, regions: Regions) -> EnsembleMemory:
        """Return each member's memory of the same images."""
        return _join([model.encode(regions) for model in self._members])


def _members_of(memory: Memory) -> tuple[Memory, ...]:
    assert isinstance(memory, EnsembleMemory)
    return memory.members


def _join(members: Sequence[Memory]) -> EnsembleMemory:
    first = members[0]
    return EnsembleMemory(first.states, first.mask, first.global_feature, first.cross_kv, tuple(members))


def _vocabulary(model: SupportsGeneration) -> tuple[object, int, int]:
    """Return the vocabulary, or else its size, and the special ids."""
    words = getattr(model, "vocabulary", None)
    words = getattr(getattr(model, "config", None), "vocab_size", None) if words is None else words
    return words, model.generation_config.bos_token_id, model.generation_config.eos_token_id
