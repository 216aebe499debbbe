"""Layers that several models share: feed-forward networks, residual connections, Xavier initialization."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from legenda.attention.dropout import Dropout


class FeedForward(nn.Sequential):
    """Two linear layers with a ReLU between them, applied to each position."""

    def __init__(self, dim: int, ff_dim: int, dropout: float) -> None:
        super().__init__(nn.Linear(dim, ff_dim), nn.ReLU(), Dropout(dropout), nn.Linear(ff_dim, dim))


class Residual(nn.Module):
    """x + sublayer(x), normalized after the sum or, with `norm_first`, before the sublayer."""

    def __init__(self, dim: int, dropout: float, norm_first: bool, norm: nn.Module | None = None) -> None:
        """Create the connection; norm: `nn.LayerNorm(dim)` by default."""
        super().__init__()
        self.norm = nn.LayerNorm(dim) if norm is None else norm
        self.dropout = Dropout(dropout)
        self.norm_first = norm_first

    def pre(self, x: Tensor) -> Tensor:
        """Return the sublayer's input."""
        return self.norm(x) if self.norm_first else x

    def post(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the sum of x and `y`, the sublayer's output."""
        total = x + self.dropout(y)
        return total if self.norm_first else self.norm(total)


class PostNormFeedForward(nn.Module):
    """A feed-forward network with a residual connection and layer normalization after it."""

    def __init__(self, dim: int, ff_dim: int, dropout: float) -> None:
        super().__init__()
        self.inner = FeedForward(dim, ff_dim, dropout)
        self.residual = Residual(dim, dropout, norm_first=False)

    def forward(self, x: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows D"]:
        """Apply the network to each position."""
        return self.residual.post(x, self.inner(x))


def init_xavier_uniform_(module: nn.Module) -> None:
    """Initialize all matrices except embeddings from Xavier's uniform distribution, as the Transformer does."""
    embeddings = {id(part.weight) for part in module.modules() if isinstance(part, nn.Embedding)}
    for parameter in module.parameters():
        if parameter.dim() > 1 and id(parameter) not in embeddings:
            nn.init.xavier_uniform_(parameter)
