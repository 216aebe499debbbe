"""The Meshed-Memory Transformer: cross-attention to every layer of the encoder (Cornia et al., CVPR 2020).

MD-SAN's release is based on its release. The memory slots are in `legenda.attention.memory`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from legenda.models.mdsan import MdsanDecoder, MdsanEncoder
from legenda.models.transformer.decoder import DecoderLayer, KeyValue
from legenda.regions import Memory, masked_mean


@dataclass(frozen=True, eq=False)
class MeshedMemory(Memory):
    """A memory with the states of each encoder layer, the last one's included."""

    levels: tuple[Float[Tensor, "B N D"], ...] = ()

    def __getitem__(self, index: slice | Tensor) -> MeshedMemory:
        """Return the memory of the images selected by a slice or an index tensor."""
        memory = super().__getitem__(index)
        levels = tuple(level[index] for level in self.levels)
        return MeshedMemory(memory.states, memory.mask, memory.global_feature, memory.cross_kv, levels)


class MeshedEncoder(MdsanEncoder):
    """MD-SAN's encoder, with the outputs of all layers in its memory."""

    def _prepare_memory(self, levels: list[Tensor], mask: Bool[Tensor, "B N"]) -> Memory:
        states = self.norm(levels[-1])
        return MeshedMemory(states, mask, masked_mean(states, mask), levels=(*levels[:-1], states))


class MeshedLayer(DecoderLayer):
    """A decoder layer whose cross-attention is applied to each of L encoder layers, with a gate for each."""

    def __init__(self, *, num_levels: int, dim: int, **arguments: Any) -> None:
        """Create the layer; further arguments as in DecoderLayer."""
        super().__init__(dim=dim, **arguments)
        self.gates = nn.ModuleList(nn.Linear(2 * dim, dim) for _ in range(num_levels))

    def _cross_attend(
        self, x: Float[Tensor, "B Q D"], cross_kv: KeyValue, mask: Bool[Tensor, "B N"], *, need_weights: bool
    ) -> tuple[Float[Tensor, "B Q D"], Float[Tensor, "B H Q N"] | None]:
        """Return the sum over levels of sigmoid(W [x; c]) * c over sqrt(L), c being x after attention to the level."""
        keys, values = cross_kv
        total, weights = torch.zeros_like(x), None
        for level, gate in enumerate(self.gates):
            kv = (keys[:, level], values[:, level])
            attended, weights = super()._cross_attend(x, kv, mask, need_weights=need_weights)
            total = total + gate(torch.cat([x, attended], dim=-1)).sigmoid() * attended
        return total * len(self.gates) ** -0.5, weights


class MeshedDecoder(MdsanDecoder):
    """MD-SAN's decoder with meshed layers; its attention weights are those over the last level."""

    def precompute_cross_kv(self, memory: Memory) -> Memory:
        """Compute keys and values of all levels `(B, L, H, N, d)` for every layer.

        The memory of another model's encoder stands for L equal levels.
        """
        levels = memory.levels if isinstance(memory, MeshedMemory) else ()
        if len(levels) != len(self.layers):
            levels = (memory.states,) * len(self.layers)
        cross_kv: list[KeyValue] = []
        for layer in self._layers:
            pairs = [layer.cross_attn.keys_values(level, level) for level in levels]
            cross_kv.append((torch.stack([k for k, _ in pairs], dim=1), torch.stack([v for _, v in pairs], dim=1)))
        return replace(memory, cross_kv=tuple(cross_kv))

    def _create_layer(self, num_layers: int, **arguments: Any) -> DecoderLayer:
        return MeshedLayer(num_levels=num_layers, **arguments)
