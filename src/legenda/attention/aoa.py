"""Attention on attention: the attended values gated by the query (AoANet, section 3.1)."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from legenda.attention.multi_head import Dropout


class AttentionOnAttention(nn.Module):
    """I * sigmoid(G), with information I and gate G both linear in the attended values and the query (Eqs. 2 to 6).

    The query is the input of the attention, as released, or its projection, as in Eq. 6.
    """

    def __init__(self, attended_dim: int, query_dim: int, dim: int, *, dropout: float = 0.0) -> None:
        """Create the linear map; dropout: of the attended values and the query before it."""
        super().__init__()
        self.dropout = Dropout(dropout)
        self.linear = nn.Linear(attended_dim + query_dim, 2 * dim)

    def forward(self, attended: Float[Tensor, "*rows A"], query: Float[Tensor, "*rows Q"]) -> Float[Tensor, "*rows D"]:
        """Return the gated information."""
        return F.glu(self.linear(self.dropout(torch.cat([attended, query], dim=-1))))
