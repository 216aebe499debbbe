"""The Meshed Transformer: a decoder that looks at every layer of the encoder (Cornia et al., CVPR 2020).

MD-SAN's release grew out of the Meshed-Memory Transformer's. This is the latter without its memory slots.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from legenda.attention.distance import Distance
from legenda.models.mdsan import MdsanConfig, MdsanDecoder, MdsanEncoder
from legenda.models.transformer import DecoderLayer, KeysValues, TransformerConfig
from legenda.regions import Memory, masked_mean


@dataclass(frozen=True, kw_only=True)
class MeshedConfig(MdsanConfig):
    """Sizes and slots of `meshed`: those of MD-SAN, whose attention it has in single branches without distances."""

    distance: Distance = "none"
    """The distance that rescales the scores; none leaves them."""
    branches: int = 1
    """Attentions whose mean is taken."""
    drop_branch: float = 0.0
    """Probability that training leaves out each of several branches."""
    reading: Literal["released", "paper"] = "paper"
    """paper: one residual connection and one layer normalisation around each attention; released: as in MD-SAN."""

    def build_encoder(self) -> MeshedEncoder:
        """The encoder, which hands over all its layers."""
        return MeshedEncoder(self)

    def build_decoder(self) -> MeshedDecoder:
        """The decoder, which looks at all of them."""
        return MeshedDecoder(self)


@dataclass(frozen=True, eq=False)
class MeshedMemory(Memory):
    """A memory that also has the states of each encoder layer, the last one's included."""

    levels: tuple[Float[Tensor, "B N D"], ...] = ()

    def __getitem__(self, index: slice | Tensor) -> MeshedMemory:
        """The memory of the pictures named by a slice or an index tensor."""
        found = super().__getitem__(index)
        levels = tuple(level[index] for level in self.levels)
        return MeshedMemory(found.states, found.mask, found.global_feature, found.cross_kv, levels)


class MeshedEncoder(MdsanEncoder):
    """MD-SAN's encoder, of which every layer is remembered."""

    def _remember(self, levels: list[Tensor], mask: Bool[Tensor, "B N"]) -> Memory:
        states = self.norm(levels[-1])
        return MeshedMemory(states, mask, masked_mean(states, mask), levels=(*levels[:-1], states))


class MeshedLayer(DecoderLayer):
    """A decoder layer that looks at L encoder layers with one attention, and a gate for each of them."""

    def __init__(self, config: TransformerConfig, *, double_norm: bool = False) -> None:
        super().__init__(config, double_norm=double_norm)
        self.gates = nn.ModuleList(nn.Linear(2 * config.dim, config.dim) for _ in range(config.num_layers))

    def _attended(
        self, x: Float[Tensor, "B Q D"], image: KeysValues, mask: Bool[Tensor, "B N"], *, need_weights: bool
    ) -> tuple[Float[Tensor, "B Q D"], Float[Tensor, "B H Q N"] | None]:
        """Sum over the levels of sigmoid(W [x; c]) * c over sqrt(L), c being what x becomes by looking at the level."""
        keys, values = image
        total, weights = torch.zeros_like(x), None
        for level, gate in enumerate(self.gates):
            seen, weights = super()._attended(x, (keys[:, level], values[:, level]), mask, need_weights=need_weights)
            total = total + gate(torch.cat([x, seen], dim=-1)).sigmoid() * seen
        return total * len(self.gates) ** -0.5, weights


class MeshedDecoder(MdsanDecoder):
    """MD-SAN's decoder with meshed layers; the attention that it shows is that to the last level."""

    def precompute_cross_kv(self, memory: Memory) -> Memory:
        """Keys and values of all levels `(B, L, H, N, d)` for every layer; of another model's encoder, L times its
        states.
        """
        levels = memory.levels if isinstance(memory, MeshedMemory) else ()
        if len(levels) != len(self.layers):
            levels = (memory.states,) * len(self.layers)
        projected: list[KeysValues] = []
        for layer in self._stack:
            pairs = [layer.image.keys_values(level, level) for level in levels]
            projected.append((torch.stack([k for k, _ in pairs], dim=1), torch.stack([v for _, v in pairs], dim=1)))
        return replace(memory, cross_kv=tuple(projected))

    def _layer(self, config: TransformerConfig, double_norm: bool) -> DecoderLayer:
        return MeshedLayer(config, double_norm=double_norm)
