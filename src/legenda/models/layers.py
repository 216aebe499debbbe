"""Layers that several models share."""

from __future__ import annotations

from collections.abc import Sequence

from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from legenda.attention.multi_head import Dropout
from legenda.errors import DataError
from legenda.models.packing import LinearMap, SplitLinear


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


class WordLSTM(nn.LSTMCell, SplitLinear):
    """An LSTM cell whose input is a token's embedding, concatenated with inputs that depend on the image or the step.

    The gates are linear in all of them, so the part of the embeddings is one product for all positions of all rows, and
    `step` computes the rest. Weights are those of `nn.LSTMCell` with the embedding first.
    """

    def __init__(self, input_dims: Sequence[int], hidden_dim: int) -> None:
        """Create the weights; input_dims: the width of the embedding, and those of the other inputs."""
        super().__init__(sum(input_dims), hidden_dim)
        self.input_dims = list(input_dims)

    def parts(self) -> list[tuple[Tensor, Tensor | None]]:
        """Return the weights `(gates, width)` of the embedding (with the biases), the other inputs and the state."""
        words, *others = self.weight_ih.split(self.input_dims, dim=1)
        return [(words, self.bias_ih + self.bias_hh), *((weight, None) for weight in (*others, self.weight_hh))]

    def step(
        self,
        input_gates: Float[Tensor, "*rows gates"],
        other: Float[Tensor, "*rows O"],
        hidden: Float[Tensor, "*rows D"],
        cell: Float[Tensor, "*rows D"],
        maps: Sequence[LinearMap],
    ) -> tuple[Float[Tensor, "*rows D"], Float[Tensor, "*rows D"]]:
        """Return hidden state and cell after one token; maps: of the other input and of the hidden state to gates."""
        gates = input_gates + maps[0](other) + maps[1](hidden)
        i, f, g, o = gates.chunk(4, dim=-1)
        cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
        return o.sigmoid() * cell.tanh(), cell


def run_packed_lstm(lstm: nn.LSTM, frames: Float[Tensor, "B N D"], mask: Bool[Tensor, "B N"]) -> Float[Tensor, "B N H"]:
    """Return the LSTM's output for each frame of each video, and zeros for padding, which must follow the frames.

    Raise DataError where padding stands between frames.
    """
    lengths = mask.sum(dim=1).cpu()
    if not bool(mask[:, :-1].ge(mask[:, 1:]).all()):
        raise DataError("padding must follow the frames of a video, but this mask has padding between frames")
    if not len(frames):  # which pack_padded_sequence refuses
        return lstm(frames)[0]
    packed = pack_padded_sequence(frames, lengths, batch_first=True, enforce_sorted=False)
    return pad_packed_sequence(lstm(packed)[0], batch_first=True, total_length=frames.shape[1])[0]
