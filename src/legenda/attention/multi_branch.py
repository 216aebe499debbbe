"""Multi-branch self-attention: the mean of several attentions, some of them dropped in training (MD-SAN, IV-B)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from legenda.attention.multi_head import AttentionOutput, Dropout


class Branch(nn.Module):
    """An attention inside a residual connection and layer normalization, as in the released code."""

    def __init__(self, attention: nn.Module, dim: int, dropout: float) -> None:
        super().__init__()
        self.attention = attention
        self.norm = nn.LayerNorm(dim)
        self.dropout = Dropout(dropout)

    def forward(self, query: Float[Tensor, "B T D"], *others: object) -> AttentionOutput:
        """Return norm(query + attention(query, ...)) and the attention's weights; others: as in MultiHeadAttention."""
        attended = self.attention(query, *others)
        return AttentionOutput(self.norm(query + self.dropout(attended.values)), attended.weights)


class MultiBranchAttention(nn.Module):
    """The mean of M attentions of any kind, with the call of a single one (Eqs. 9 to 11).

    In training each branch is dropped with probability `drop`, once per call for the whole batch, and the others are
    divided by 1 - drop, so the expected output is that of evaluation. A dropped branch is not computed; its parameters
    get gradients of 0.
    """

    def __init__(self, branches: Sequence[nn.Module], width: int, drop: float = 0.0) -> None:
        """Create the mean of `branches`, each with `width` output channels."""
        super().__init__()
        self.width = width
        self.branches = nn.ModuleList(branches)
        self.drop = drop

    def forward(self, query: Float[Tensor, "B T D"], *others: object) -> AttentionOutput:
        """Return the mean, without weights; others: as in MultiHeadAttention."""
        dropping = self.training and self.drop > 0
        # on the CPU, so that no synchronization with a GPU is needed
        kept = (torch.rand(len(self.branches)) >= self.drop).tolist() if dropping else [True] * len(self.branches)
        total = query.new_zeros(*query.shape[:2], self.width)
        for branch, keep in zip(self.branches, kept, strict=True):
            total = total + (branch(query, *others).values if keep else _zero(branch))
        count = len(self.branches) * ((1 - self.drop) if dropping else 1)
        return AttentionOutput(total / count, None)


def _zero(branch: nn.Module) -> Float[Tensor, ""]:
    """Return 0, connected to every parameter of the branch so that each gets a gradient of 0."""
    return torch.stack([parameter.flatten()[:1].sum() for parameter in branch.parameters()]).sum() * 0.0
