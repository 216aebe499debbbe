"""Additive attention: one head with scores from the sum of query and key (Bahdanau et al., 2015; X-LAN, Eq. 1)."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from legenda.attention.multi_head import AttentionOutput


class AdditiveAttention(nn.Module):
    """Softmax(w . tanh(K + W q)) V; values are not projected."""

    def __init__(self, query_dim: int, key_dim: int, hidden_dim: int, *, bias: bool = True) -> None:
        super().__init__()
        self.query = nn.Linear(query_dim, hidden_dim, bias=bias)
        self.key = nn.Linear(key_dim, hidden_dim, bias=bias)
        self.score = nn.Linear(hidden_dim, 1, bias=bias)

    def forward(
        self,
        query: Float[Tensor, "B K Q"],
        keys: Float[Tensor, "B N A"],
        values: Float[Tensor, "B N D"],
        attention_mask: Bool[Tensor, "B N"] | None = None,
    ) -> AttentionOutput:
        """Attend from K queries per image to keys that `self.key` has projected, once per image.

        The weights are `(B, 1, K, N)`: one head.
        """
        sums = keys.unsqueeze(1) + self.query(query).unsqueeze(2)
        scores = self.score(sums.tanh()).squeeze(-1)
        if attention_mask is not None:
            scores = scores.masked_fill(~attention_mask.unsqueeze(1), float("-inf"))
        weights = scores.softmax(dim=-1)
        return AttentionOutput(torch.bmm(weights, values), weights.unsqueeze(1))
