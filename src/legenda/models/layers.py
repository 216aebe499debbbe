"""Layers that several models share, and the positions of tokens without padding that Transformers compute at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
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


class Positions:
    """The real positions of rows of tokens `(B, K, T)`, which padding follows in each row.

    Packed tensors hold these positions alone, `(P, ...)`, row by row. Attention needs them by row or by image, which
    adds zeros; all other layers are applied to each position.
    """

    def __init__(self, shape: torch.Size, real: Bool[Tensor, "B K T"] | None = None) -> None:
        """shape: of the tokens; real: True for tokens and False for padding, by default all are real."""
        self.shape, (_, K, T) = shape, shape
        self.longest, self.most = T, K * T
        """The tokens of the longest row, and of the image with most."""
        self.packed: Tensor | None = None
        if real is None:
            return
        self.packed = packed = real.flatten().nonzero().squeeze(1)
        counts = real.flatten(1).sum(dim=1)
        lengths = real.sum(dim=-1)
        self.longest, self.most = torch.stack([lengths.max(), counts.max()]).tolist() if packed.numel() else (1, 1)
        self._by_row = packed // T * self.longest + packed % T
        image = packed // (K * T)
        first = counts.cumsum(dim=0) - counts
        self._by_image = image * self.most + torch.arange(len(packed), device=packed.device) - first[image]

    def pack(self, x: Tensor) -> Tensor:
        """Return the real positions."""
        x = x.flatten(0, 2)
        return x if self.packed is None else x.index_select(0, self.packed)

    def unpack(self, x: Tensor) -> Tensor:
        """Return the positions as `(B, K, T, ...)` where all are real, and else packed as they are."""
        return x.unflatten(0, self.shape) if self.packed is None else x

    def by_row(self, x: Tensor) -> Tensor:
        """Return each row padded to the longest."""
        return self._pad(x, self.shape[0] * self.shape[1], self.longest, "_by_row")

    def by_image(self, x: Tensor) -> Tensor:
        """Return all rows of each image one after the other, padded to the image with most tokens."""
        return self._pad(x, self.shape[0], self.most, "_by_image")

    def from_rows(self, x: Tensor) -> Tensor:
        """Return the packed positions of `by_row`."""
        x = x.flatten(0, 1)
        return x if self.packed is None else x.index_select(0, self._by_row)

    def from_images(self, x: Tensor) -> Tensor:
        """Return the packed positions of `by_image`."""
        x = x.flatten(0, 1)
        return x if self.packed is None else x.index_select(0, self._by_image)

    def attend(
        self,
        attention: Any,
        query: Float[Tensor, "P D"],
        x: Float[Tensor, "P D"],
        mask: Bool[Tensor, "B K *T T"] | None,
    ) -> Float[Tensor, "P D"]:
        """Return causal self-attention of each row; mask: which tokens later ones, or each one, attend to."""
        if mask is not None:
            mask = mask.flatten(0, 1)[..., : self.longest]
            mask = mask if mask.dim() == 2 else mask[:, : self.longest]
        x = x.unsqueeze(1)  # heads are split where each position is a row by itself: (P, H, 1, d)
        queries = attention.queries(query.unsqueeze(1))
        queries = tuple(map(self._heads, queries)) if isinstance(queries, tuple) else self._heads(queries)
        keys, values = map(self._heads, attention.keys_values(x, x))
        return self.from_rows(attention.attend(queries, keys, values, mask, is_causal=True).values)

    def pairs(self, mask: Bool[Tensor, "B K T"]) -> tuple[Int[Tensor, " M"], Int[Tensor, " M"]]:
        """Return the packed positions of query and key of all pairs in causal self-attention, by the query."""
        place = self._by_row % self.longest
        keys = self.pack(mask.unsqueeze(2).expand(*self.shape, -1))[:, : self.longest]
        i, j = (keys & (torch.arange(self.longest, device=mask.device) <= place.unsqueeze(1))).nonzero(as_tuple=True)
        return i, i - place[i] + j

    def _heads(self, x: Float[Tensor, "P H 1 d"]) -> Float[Tensor, "rows H longest d"]:
        return self.by_row(x.squeeze(2)).transpose(1, 2).contiguous()

    def _pad(self, x: Tensor, count: int, size: int, slots: str) -> Tensor:
        if self.packed is None:
            return x.unflatten(0, (count, size))
        padded = x.new_zeros(count * size, *x.shape[1:]).index_copy(0, getattr(self, slots), x)
        return padded.unflatten(0, (count, size))
