"""Multi-head attention with memory slots: learned keys and values besides the regions' (Cornia et al., 2020)."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from legenda.attention.geometry import Geometry
from legenda.attention.multi_head import MultiHeadAttention


class MemoryAttention(MultiHeadAttention):
    """Attention(W_q X, [W_k X; sqrt(d_k) M_k], [W_v X; sqrt(m) M_v]) with m slots that no mask excludes (M2, Eq. 2).

    The factors are those of the release. Attention weights, where requested, end with those of the slots.
    """

    def __init__(self, dim: int, num_heads: int = 8, *, num_slots: int, dropout: float = 0.0) -> None:
        super().__init__(dim, num_heads, dropout=dropout)
        self.num_slots = num_slots
        # The first axis, of length 1, makes Xavier's range that of the released training
        self.slot_keys = nn.Parameter(torch.empty(1, num_slots, dim))
        self.slot_values = nn.Parameter(torch.empty(1, num_slots, dim))
        nn.init.xavier_uniform_(self.slot_keys)
        nn.init.xavier_uniform_(self.slot_values)

    def keys_values(
        self, key: Float[Tensor, "B S D"], value: Float[Tensor, "B S D"], attention_mask: Tensor | None = None
    ) -> tuple[Float[Tensor, "B H keys d"], Float[Tensor, "B H keys d"]]:
        """Return the projected keys and values, followed by those of the slots."""
        keys, values = super().keys_values(key, value, attention_mask)
        slot_keys = self._split(self.slot_keys * keys.shape[-1] ** 0.5).expand(key.shape[0], -1, -1, -1)
        slot_values = self._split(self.slot_values * self.num_slots**0.5).expand(key.shape[0], -1, -1, -1)
        return torch.cat([keys, slot_keys], dim=2), torch.cat([values, slot_values], dim=2)

    def _mask(self, attention_mask: Bool[Tensor, "B S"] | None, geometry: Geometry | None) -> Tensor | None:
        del geometry
        return None if attention_mask is None else F.pad(attention_mask, (0, self.num_slots), value=True)
