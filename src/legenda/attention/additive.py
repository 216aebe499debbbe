"""Additive attention: one head with scores from the sum of query and key (Bahdanau et al., 2015; X-LAN, Eq. 1)."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from legenda.attention.multi_head import AttentionOutput
from legenda.regions import check_mask


class AdditiveAttention(nn.Module):
    """Softmax(w . tanh(K + W q)) V; values are not projected."""

    def __init__(self, query_dim: int, key_dim: int, hidden_dim: int, *, bias: bool = True) -> None:
        super().__init__()
        self.query = nn.Linear(query_dim, hidden_dim, bias=bias)
        self.key = nn.Linear(key_dim, hidden_dim, bias=bias)
        self.score = nn.Linear(hidden_dim, 1, bias=bias)

    def keys_values(
        self, key: Float[Tensor, "B N A"], value: Float[Tensor, "B N D"]
    ) -> tuple[Float[Tensor, "B N H"], Float[Tensor, "B N D"]]:
        """Return the projected keys, and the values as they are, as a decoder caches them."""
        return self.key(key), value

    def queries(self, query: Float[Tensor, "B K Q"]) -> Float[Tensor, "B K H"]:
        """Return the projected queries."""
        return self.query(query)

    def attend(
        self,
        queries: Float[Tensor, "B K H"],
        keys: Float[Tensor, "B N H"],
        values: Float[Tensor, "B N D"],
        attention_mask: Bool[Tensor, "B N"],
        *,
        need_weights: bool = True,  # noqa: ARG002
    ) -> AttentionOutput:
        """Attend with projected queries and keys; the weights, which are always returned, are `(B, 1, K, N)`."""
        check_mask(attention_mask)
        sums = keys.unsqueeze(1) + queries.unsqueeze(2)
        scores = self.score(sums.tanh()).squeeze(-1).masked_fill(~attention_mask.unsqueeze(1), float("-inf"))
        weights = scores.softmax(dim=-1)
        return AttentionOutput(torch.bmm(weights, values), weights.unsqueeze(1))
