"""LSTMs: a cell whose input gates are computed for all tokens at once, and a masked pass over frames."""

from __future__ import annotations

from collections.abc import Sequence

from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from legenda.errors import DataError


class WordLSTM(nn.LSTMCell):
    """An LSTM cell whose input is a token's embedding, concatenated with an input that depends on the previous step.

    The gates are linear in both, so the part of the embeddings is one product for all positions of all rows
    (`input_gates`), and `step` computes the rest. Weights are those of `nn.LSTMCell` with the embedding first.
    """

    def __init__(self, word_dim: int, other_dim: int, hidden_dim: int) -> None:
        super().__init__(word_dim + other_dim, hidden_dim)
        self.word_dim = word_dim

    def split_weights(self) -> tuple[Float[Tensor, "gates E"], Float[Tensor, "gates O"], Float[Tensor, "gates D"]]:
        """Return the weights of the embedding, of the other input and of the hidden state."""
        words, other = self.weight_ih.split([self.word_dim, self.weight_ih.shape[1] - self.word_dim], dim=1)
        return words, other, self.weight_hh

    def input_gates(
        self, words: Float[Tensor, "*rows E"], weight: Float[Tensor, "gates E"]
    ) -> Float[Tensor, "*rows gates"]:
        """Return the part of the gates that the embeddings contribute, biases included."""
        return F.linear(words, weight, self.bias_ih + self.bias_hh)

    def step(
        self,
        input_gates: Float[Tensor, "*rows gates"],
        other: Float[Tensor, "*rows O"],
        hidden: Float[Tensor, "*rows D"],
        cell: Float[Tensor, "*rows D"],
        weights: Sequence[Tensor],
    ) -> tuple[Float[Tensor, "*rows D"], Float[Tensor, "*rows D"]]:
        """Return hidden state and cell after one token; weights: of the other input and of the hidden state."""
        gates = input_gates + F.linear(other, weights[0]) + F.linear(hidden, weights[1])
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
    packed = pack_padded_sequence(frames, lengths, batch_first=True, enforce_sorted=False)
    return pad_packed_sequence(lstm(packed)[0], batch_first=True, total_length=frames.shape[1])[0]
