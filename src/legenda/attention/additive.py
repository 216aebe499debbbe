"""Additive attention: one head whose scores come from a sum of query and key (Bahdanau et al., 2015; X-LAN, Eq. 1)."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from legenda.attention.multi_head import AttentionOutput


class AdditiveAttention(nn.Module):
    """Softmax(w . tanh(K + W q)) V; the values are the attended regions themselves."""

    def __init__(self, query_dim: int, key_dim: int, hidden_dim: int) -> None:
        super().__init__()
        self.query = nn.Linear(query_dim, hidden_dim)
        self.key = nn.Linear(key_dim, hidden_dim)
        self.score = nn.Linear(hidden_dim, 1)

    def forward(
        self,
        query: Float[Tensor, "B K Q"],
        keys: Float[Tensor, "B N A"],
        values: Float[Tensor, "B N D"],
        mask: Bool[Tensor, "B N"] | None = None,
    ) -> AttentionOutput:
        """Attends from K queries per image; `keys` went through `self.key` before, once per image.

        The weights are `(B, 1, K, N)`: one head.
        """
        sums = keys.unsqueeze(1) + self.query(query).unsqueeze(2)  # tanh of each sum: no smaller tensor would do
        scores = self.score(sums.tanh()).squeeze(-1)
        if mask is not None:
            scores = scores.masked_fill(~mask.unsqueeze(1), float("-inf"))
        weights = scores.softmax(dim=-1)
        return AttentionOutput(torch.bmm(weights, values), weights.unsqueeze(1))
