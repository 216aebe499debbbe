"""Multi-branch self-attention: the mean of several attentions, some of them left out in training (MD-SAN, IV-B)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from legenda.attention.geometry import Geometry
from legenda.attention.multi_head import AttentionOutput


class Branch(nn.Module):
    """An attention with a residual connection and a layer normalisation of its own, as the released code has it."""

    def __init__(self, attention: nn.Module, dim: int, dropout: float) -> None:
        super().__init__()
        self.attention = attention
        self.norm = nn.LayerNorm(dim)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        query: Float[Tensor, "B T D"],
        key: Float[Tensor, "B S D"],
        value: Float[Tensor, "B S D"],
        mask: Bool[Tensor, "B S"] | None = None,
        geometry: Geometry | None = None,
    ) -> AttentionOutput:
        """norm(query + attention(query, key, value)); the weights are the attention's."""
        attended = self.attention(query, key, value, mask, geometry)
        return AttentionOutput(self.norm(query + self.dropout(attended.values)), attended.weights)


class MultiBranchAttention(nn.Module):
    """The mean of M attentions of any kind, called as one of them is (Eqs. 9 to 11).

    In training each branch is left out with probability `drop`, by one draw per call for the whole batch, and the
    others are divided by 1 - drop, so that the mean over all draws is what evaluation gives. A branch that is left out
    is not computed; its parameters get gradients of 0, as they would if it were.
    """

    def __init__(self, branches: Sequence[nn.Module], width: int, drop: float = 0.0) -> None:
        """width: channels that each of them gives."""
        super().__init__()
        self.width = width
        self.branches = nn.ModuleList(branches)
        self.drop = drop

    def forward(
        self,
        query: Float[Tensor, "B T D"],
        key: Float[Tensor, "B S D"],
        value: Float[Tensor, "B S D"],
        mask: Bool[Tensor, "B S"] | None = None,
        geometry: Geometry | None = None,
    ) -> AttentionOutput:
        """The mean, without weights; see MultiHeadAttention for the arguments."""
        dropping = self.training and self.drop > 0
        # Drawn on the CPU, so that no device has to be waited for to know what is left out.
        kept = (torch.rand(len(self.branches)) >= self.drop).tolist() if dropping else [True] * len(self.branches)
        total = query.new_zeros(*query.shape[:2], self.width)
        for branch, keep in zip(self.branches, kept, strict=True):
            total = total + (branch(query, key, value, mask, geometry).values if keep else _nothing(branch))
        share = len(self.branches) * ((1 - self.drop) if dropping else 1)
        return AttentionOutput(total / share, None)


def _nothing(branch: nn.Module) -> Float[Tensor, ""]:
    """0, from which every parameter of the branch gets a gradient of 0."""
    return torch.stack([parameter.flatten()[:1].sum() for parameter in branch.parameters()]).sum() * 0.0
